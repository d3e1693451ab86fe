from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import settings as module
from gateway.settings import Settings, TwilioAccount, is_loopback, origin
from tts_core.errors import SettingsError

KEY = "k" * 24
SID = "AC" + "0f" * 16


def load(tmp_path: Path, toml: str = "", **environ: str) -> Settings:
    config = tmp_path / "voxwire.toml"
    config.write_text(toml)
    return Settings.load({f"VOXWIRE_{name.upper()}": value for name, value in environ.items()}, config=config)


def faults(tmp_path: Path, toml: str = "", **environ: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, toml, **environ)
    return caught.value.message.splitlines()


def test_a_fresh_install_needs_nothing_and_is_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = Settings.load({})
    assert (made.host, made.port, made.loopback, made.api_keys) == ("127.0.0.1", 8080, True, "")
    assert made.log_text is False
    assert not made.data_dir.is_relative_to(tmp_path)
    with pytest.raises(FrozenInstanceError):
        made.port = 1  # type: ignore[misc]


def test_environment_wins_over_file_and_override_over_both(tmp_path: Path) -> None:
    toml = 'port = 1111\nhost = "::1"\nrun_ahead_s = 2'
    assert (load(tmp_path, toml).port, load(tmp_path, toml).host) == (1111, "::1")
    assert load(tmp_path, toml, port="2222").port == 2222
    assert load(tmp_path, toml).run_ahead_s == 2.0
    made = Settings.load(
        {"VOXWIRE_PORT": "2222"}, config=tmp_path / "voxwire.toml", overrides={"port": "3", "host": None}
    )
    assert (made.port, made.host) == (3, "::1")


def test_an_empty_variable_is_not_a_setting(tmp_path: Path) -> None:
    assert load(tmp_path, "port = 1111", port="").port == 1111


def test_the_file_is_found_by_variable_or_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "voxwire.toml").write_text("port = 5")
    (tmp_path / "other.toml").write_text("port = 6")
    assert Settings.load({}).port == 5
    assert Settings.load({"VOXWIRE_CONFIG": str(tmp_path / "other.toml")}).port == 6
    with pytest.raises(SettingsError, match="does not exist"):
        Settings.load({"VOXWIRE_CONFIG": str(tmp_path / "none.toml")})


def test_all_faults_are_told_at_once_each_with_what_is_accepted(tmp_path: Path) -> None:
    told = faults(
        tmp_path,
        "max_sockets = true\nrun_ahead_s = nan",
        port="eighty",
        log_level="loud",
        public_origin="ftp://x",
    )
    assert len(told) == 5
    assert all("accepted: " in line for line in told)
    text = "\n".join(told)
    for name in (
        "VOXWIRE_PORT = 'eighty'",
        "VOXWIRE_LOG_LEVEL",
        "VOXWIRE_PUBLIC_ORIGIN",
        "max_sockets in",
        "run_ahead_s in",
    ):
        assert name in text


def test_an_unknown_key_in_the_file_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    (told,) = faults(tmp_path, 'public_orgin = "https://x.example"')
    assert "public_orgin" in told
    assert "did you mean public_origin?" in told
    assert "is not valid TOML" in faults(tmp_path, "port =")[0]


def test_unknown_variables_are_reported_not_refused(tmp_path: Path) -> None:
    made = load(tmp_path, service_host="10.0.0.1", port="81")
    assert made.unknown_env == ("VOXWIRE_SERVICE_HOST",)
    assert module.nearest_variable("VOXWIRE_SERVICE_HOST") is None
    assert module.nearest_variable("VOXWIRE_PROT") == "VOXWIRE_PORT"
    assert module.nearest_variable("VOXWIRE_TWILIO_TOKEN") == "VOXWIRE_TWILIO_AUTH_TOKEN"
    assert "enableServiceLinks" in faults(tmp_path, port="tcp://10.0.0.1:8080")[0]


def test_keys_from_variable_and_list(tmp_path: Path) -> None:
    assert (
        load(tmp_path, api_keys=f"one:{KEY}, two[speak+call]:{KEY}1").api_keys
        == f"one:{KEY},two[speak+call]:{KEY}1"
    )
    assert load(tmp_path, f'api_keys = ["one:{KEY}"]').api_keys == f"one:{KEY}"
    assert load(tmp_path).api_keys == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("api_keys", "hunter2-secret"),
        ("secret", "hunter2-secret"),
        ("api_keys", "a:hunter2-secret"[:14]),
        ("redis_url", "http://u:hunter2-secret@x"),
    ],
)
def test_a_bad_secret_is_never_shown(tmp_path: Path, name: str, value: str) -> None:
    told = "\n".join(faults(tmp_path, **{name: value}))
    assert name.upper() in told
    assert "hunter2" not in told


def test_secrets_are_not_in_the_repr(tmp_path: Path) -> None:
    made = load(
        tmp_path,
        api_keys=f"a:{KEY}",
        secret="p" * 32,
        redis_url="redis://:pw-of-redis@x",
        twilio_auth_token="t" * 32,
        public_origin="https://voice.example.com",
    )
    assert made.twilio == (TwilioAccount("", "t" * 32),)
    shown = repr(made) + repr(made.twilio)
    assert not any(secret in shown for secret in (KEY, "p" * 32, "pw-of-redis", "t" * 32))


def test_twilio_accounts_from_the_file(tmp_path: Path) -> None:
    origin = 'public_origin = "https://voice.example.com"\n'
    toml = origin + f'[[twilio]]\naccount_sid = "{SID}"\nauth_token = "{"0" * 32}"\ntenant = "acme"\n'
    assert load(tmp_path, toml).twilio == (TwilioAccount(SID, "0" * 32, "acme"),)
    assert load(tmp_path, toml, twilio_auth_token="9" * 32).twilio == (TwilioAccount("", "9" * 32),)
    assert "AC and 32 hex" in faults(tmp_path, toml.replace(SID, "AC1"))[0]
    assert "auth_token" in faults(tmp_path, f'[[twilio]]\naccount_sid = "{SID}"\n')[0]
    assert "unknown keys" in faults(tmp_path, toml + "x = 1\n")[0]
    assert "public_origin is not" in faults(tmp_path, toml.removeprefix(origin))[0]


def test_a_twilio_account_from_the_environment(tmp_path: Path) -> None:
    rest = {"public_origin": "https://voice.example.com"}
    made = load(tmp_path, twilio_auth_token="9" * 32, twilio_account_sid=SID, **rest)
    assert made.twilio == (TwilioAccount(SID, "9" * 32),)
    assert "VOXWIRE_TWILIO_AUTH_TOKEN" in faults(tmp_path, twilio_auth_token="short", **rest)[0]
    assert "VOXWIRE_TWILIO_AUTH_TOKEN" in faults(tmp_path, twilio_account_sid=SID, **rest)[0]


def test_tls_is_all_or_nothing(tmp_path: Path) -> None:
    assert len(faults(tmp_path, tls_port="8443")) == 2
    assert "tls_port is not" in faults(tmp_path, tls_cert="x.pem")[0]
    pem = tmp_path / "x.pem"
    pem.write_text("")
    made = load(tmp_path, tls_port="8443", tls_cert=str(pem), tls_key=str(pem))
    assert made.tls_cert == pem
    assert "same as port" in faults(tmp_path, tls_port="8080", tls_cert=str(pem), tls_key=str(pem))[0]


def test_voice_aliases_from_file_and_environment(tmp_path: Path) -> None:
    assert dict(load(tmp_path, '[voice_aliases]\n"a-b" = "one"').voice_aliases) == {"a-b": "one"}
    assert dict(load(tmp_path, voice_aliases="x=one, *=two").voice_aliases) == {"x": "one", "*": "two"}
    assert "alias" in faults(tmp_path, voice_aliases="x=")[0]


def test_hosts_of_references_are_none_or_names(tmp_path: Path) -> None:
    assert load(tmp_path).reference_hosts == ()
    made = load(tmp_path, reference_hosts="media.example.com, *.clips.example.com:8443")
    assert made.reference_hosts == ("media.example.com", "*.clips.example.com:8443")
    for bad in ("127.0.0.1", "*", "https://media.example.com", "media.example.com/clips"):
        assert "list for references" in faults(tmp_path, reference_hosts=bad)[0]


@pytest.mark.parametrize(
    ("given_", "want"),
    [
        ("https://Voice.Example.com/", "https://voice.example.com"),
        ("https://voice.example.com:443", "https://voice.example.com"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_origins_are_normalised(given_: str, want: str) -> None:
    assert origin(given_) == want


@pytest.mark.parametrize(
    "bad", ["voice.example.com", "https://a@b", "https://a/x", "https://a?x", "ws://a", "https://a:x", 5]
)
def test_what_is_no_origin_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="is"):
        origin(bad)


def test_loopback() -> None:
    assert all(
        map(
            is_loopback,
            ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST.", "::ffff:127.0.0.1"],
        )
    )
    assert not any(
        map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "localhost.example.com", "127.0.0.1.example.com", ""])
    )


def test_every_setting_says_what_it_accepts() -> None:
    named = [item for item in fields(Settings) if item.name != "unknown_env"]
    assert {item.name for item in named} == set(module._FIELDS)
    assert all(item.metadata["accepts"] for item in named)


@given(
    st.sampled_from(sorted(module._FIELDS)),
    st.text(max_size=40)
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.lists(st.text(max_size=9), max_size=3)
    | st.none(),
)
def test_no_value_whatever_escapes_as_another_error(name: str, value: object) -> None:
    raw = {name: (value, name)}
    told: list[str] = []
    read = module._read(raw, told)
    assert (name in read) != bool(told)


def test_what_a_gepard_model_is_made_of_is_read(tmp_path: Path) -> None:
    made = load(
        tmp_path,
        gepard_checkpoint="nineninesix/gepard-1.0@" + "0" * 40,
        gepard_dtype="BFloat16",
        gepard_streams="64",
        gepard_temperature="0",
        gepard_guard="off",
    )
    assert (made.gepard_dtype, made.gepard_streams, made.gepard_temperature) == ("bfloat16", 64, 0.0)
    assert (made.gepard_guard, made.gepard_trim, made.gepard_continuity) == (False, True, False)
    told = faults(
        tmp_path, gepard_dtype="int8", gepard_temperature="3", gepard_codec_backend="wav", gepard_top_k="9"
    )
    assert len(told) == 4


def test_the_description_names_every_setting_and_no_secret(tmp_path: Path) -> None:
    made = load(
        tmp_path,
        api_keys=f"a:{KEY}",
        secret="p" * 32,
        twilio_auth_token="t" * 32,
        public_origin="https://voice.example.com",
        allowed_hosts="a.example,b.example",
        voice_aliases="ada=heart",
    )
    lines = list(made.describe())
    assert len(lines) == len(module._FIELDS)
    text = "\n".join(lines)
    assert "VOXWIRE_API_KEYS = (set)" in text
    assert "VOXWIRE_PORT = 8080  (a whole number" in text
    assert "VOXWIRE_TLS_CERT = (not set)  (" in text
    assert "VOXWIRE_CLEAN_TEXT = on  (" in text
    assert "VOXWIRE_ALLOWED_HOSTS = a.example,b.example  (" in text
    assert "VOXWIRE_VOICE_ALIASES = ada=heart  (" in text
    assert "[[twilio]] = (set)  (" in text
    assert not any(secret in text for secret in (KEY, "p" * 32, "t" * 32))


def test_the_other_addresses_of_redis_need_the_first(tmp_path: Path) -> None:
    urls = {"redis_durable_url": "unix:///durable.sock", "redis_check_url": "redis://check:pw-of-check@x"}
    found = faults(tmp_path, **urls)
    assert [line.split()[0] for line in found] == list(urls)
    made = load(tmp_path, redis_url="unix:///redis.sock", redis_unchecked="yes", **urls)
    assert made.redis_unchecked
    assert "pw-of-check" not in "\n".join(made.describe()) + repr(made)


def test_a_mark_over_several_gateways_needs_their_common_secret(tmp_path: Path) -> None:
    assert load(tmp_path, mark="on").mark is True
    assert load(tmp_path).mark is False
    assert load(tmp_path).reference_perth == "off"
    (told,) = faults(tmp_path, mark="on", redis_url="redis://localhost")
    assert "VOXWIRE_SECRET" in told
    assert load(tmp_path, mark="on", redis_url="redis://localhost", secret="s" * 32).mark


@pytest.mark.parametrize(
    ("given", "prefix"),
    [("/v1", "/v1"), ("/", ""), ("/eleven/v1/", "/eleven/v1"), ("/a.b-c_d~e", "/a.b-c_d~e")],
)
def test_a_prefix_is_a_path_or_nothing(tmp_path: Path, given: str, prefix: str) -> None:
    assert load(tmp_path, elevenlabs_prefix=given).elevenlabs_prefix == prefix


@pytest.mark.parametrize("given", ["v1", "/v 1", "/v1/{x}", "//v1", "/v1?x", "/" + "/".join("abcdefghi")])
def test_what_is_no_path_is_no_prefix(tmp_path: Path, given: str) -> None:
    assert "elevenlabs_prefix" in faults(tmp_path, f'elevenlabs_prefix = "{given}"')[0]


def test_how_a_context_closes_is_one_of_two_ways(tmp_path: Path) -> None:
    assert load(tmp_path).close_context_policy == "smart"
    assert load(tmp_path, close_context_policy="Drain").close_context_policy == "drain"
    assert "smart" in faults(tmp_path, close_context_policy="hard")[0]
    assert load(tmp_path, elevenlabs_absolute_alignment="on").elevenlabs_absolute_alignment
