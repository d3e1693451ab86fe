from __future__ import annotations

from gateway.intake.refusal import ReferenceRefused
from tts_core.errors import BadRequest


def test_has_the_reason_in_its_code_and_is_a_client_error() -> None:
    refused = ReferenceRefused("too_long", "too long")
    assert isinstance(refused, BadRequest)
    assert (refused.status, refused.code, refused.reason) == (422, "reference_too_long", "too_long")
    assert (refused.message, refused.field) == ("too long", "reference")
    assert BadRequest.code == "bad_request"
