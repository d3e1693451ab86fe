"""Word lists that tell a full stop of an abbreviation from the end of a sentence (US and UK English).

All entries are lower case and without the last full stop.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TITLES = _words(
    """
    dr mr mrs ms mx messrs mmes prof rev fr hon pres gov sen rep gen lt col maj capt cpl sgt pvt cmdr
    adm insp supt det mt ft ald atty asst assoc dir
    """
)
"""Always followed by a name: never the end of a sentence."""

NEVER_LAST = _words("e.g i.e eg ie vs v.s viz cf approx incl excl esp ca resp aka a.k.a attn")
"""Always followed by more of the sentence."""

BEFORE_NUMBER = _words(
    """
    no nos p pp fig figs vol vols ch chap sec sect art par para ed eds ext tel ph item eq ver v rm apt
    ste bldg fl hwy rte pt pg jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur
    thurs fri sat sun c
    """
)
"""Not the end of a sentence when a number follows ("No. 5", "Jan. 3", "Apt. 12")."""

ALSO_WORDS = _words("no fig par para item art sec pt c sat sun mar mon wed")
"""Of these, the ones that are words too when they are written small."""

MAY_END = _words(
    """
    st ave blvd rd ln ct pl sq pkwy hwy cir ter trl expy apt ste bldg dept fl rm ext tel inc ltd co corp
    llc llp plc bros jr sr esq ph.d phd m.d md d.d.s b.a m.a b.s m.s d.c u.s u.k u.n u.s.a e.u etc al
    a.m p.m a.d b.c b.c.e c.e est ft min mins sec secs hr hrs wk yr yrs mo lb lbs oz gal qt jan feb mar
    apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat sun univ assn mfg intl
    natl govt
    """
)
"""Ambiguous: ends a sentence only if the next word is one that starts sentences."""

_ANY_CASE = _words("dr mr mrs ms prof")
_LOWER = _words(
    "est etc al ft min mins sec secs hr hrs wk yr yrs mo lb lbs oz gal qt eg ie viz cf ca esp resp"
)


def is_abbreviation(word: str, words: frozenset[str]) -> bool:
    """Whether ``word`` (without its full stop) is one of ``words`` in the shape people write that one in.

    "sat." at the end of a clause is a verb and "Sat." a day; "CA" is a state and "ca." means about. Dotted
    forms ("e.g", "p.m") count in any case.
    """
    low = word.lower()
    if low not in words:
        return False
    if "." in low or low in _ANY_CASE or words is BEFORE_NUMBER:
        return True
    if words is TITLES:
        return word[:1].isupper()
    if low in _LOWER or words is NEVER_LAST:
        return word.islower()
    return word[:1].isupper()


STARTERS = _words(
    """
    a an the this that these those there here it it's its he he's she she's we we're we'll we've they
    they're they'll i i'm i'll i've i'd you you're you'll you've your our my his her their who what
    what's when where why how which whose is are was were am do does did don't can can't could would
    wouldn't should will has have had if after before once while until unless because since although
    though as for from in on at by with without during to of about and but or so then also however
    therefore meanwhile otherwise instead please thanks thank let let's just note now next first second
    third finally lastly yes no not never ok okay sure well oh all any some each every both either most
    many few another one two three someone everyone nobody nothing something everything call press bring
    check make take give tell visit ask remember unfortunately fortunately actually basically
    additionally furthermore moreover perhaps maybe today tomorrow yesterday tonight later good great
    perfect sorry hello hi hey
    """
)
"""Words that, capitalised after an ambiguous abbreviation, start a new sentence."""

NOT_AFTER_INITIAL = _words("will may grant mark art bill rob sue don in on an a my so no van")
"""Starters that are also names or parts of names, so that "J. Will Smith" stays whole."""

OPENERS = _words(
    """
    hi hello hey hiya greetings welcome sure okay ok yes yeah yep no nope right alright great perfect
    excellent wonderful awesome fantastic absolutely certainly definitely exactly indeed understood
    thanks sorry well so now oh ah hmm um uh actually however unfortunately fortunately first firstly
    second finally also anyway meanwhile instead otherwise basically honestly clearly please good nice
    cool gotcha
    """
)
"""One word that may stand alone as the first clause ("Sure, ...")."""

SUFFIXES = _words(
    """
    jr sr ii iii iv esq phd ph.d md m.d dds d.d.s rn cpa mba inc ltd llc llp plc corp co apt ste suite
    unit bldg floor fl room rm d.c dc usa u.s u.s.a uk u.k
    """
)
"""What belongs to the name or address before a comma."""

TAILS = _words("please thanks sir madam ma'am too though then right okay ok huh yeah yes no correct folks")
"""One word that ends a sentence after a comma and is not worth a breath of its own."""

TOP_LEVEL_DOMAINS = _words(
    """
    com net org edu gov mil int io ai co uk us de fr eu ca au in info biz app dev tv me ly gl js py ts
    txt pdf html md json xml csv doc docx exe zip
    """
)
"""After a full stop without a space these are part of a name, not the next sentence."""

MONTHS = _words(
    """
    january february march april may june july august september october november december jan feb mar
    apr jun jul aug sep sept oct nov dec
    """
)
