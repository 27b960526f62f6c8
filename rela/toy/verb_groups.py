"""The verbs in groups, by what they govern and how they behave."""

from rela.toy.verbs import BELONG, VERBS, verbs_governing

TRANSITIVE = tuple(verb for verb in verbs_governing("acc") if not verb.prefix)
SEPARABLE = tuple(
    verb for verb in VERBS if verb.prefix and verb.government in (("acc",), ("-",)) and "sich" not in verb.flags
)
INTRANSITIVE = tuple(
    verb for verb in verbs_governing("-") if not verb.prefix and verb.flags.isdisjoint(("sich", "whither"))
)
MOTION = tuple(verb for verb in verbs_governing("-") if "whither" in verb.flags)
DATIVE = verbs_governing("dat")
DITRANSITIVE = verbs_governing("dat", "acc")
REFLEXIVE_VERBS = tuple(verb for verb in VERBS if "sich" in verb.flags)
PREPOSITIONAL = tuple(verb for verb in VERBS if len(verb.government) == 3 and "sich" not in verb.flags)

# Everything people do and are, everything they do, and what is short enough to be part of a longer sentence.
ORDINARY = tuple(verb for verb in VERBS if verb is not BELONG)
EVENTS = tuple(verb for verb in ORDINARY if "state" not in verb.flags)
SHORT = tuple(verb for verb in ORDINARY if verb not in DITRANSITIVE)
# Verbs whose infinitive always brings something along, so that German sets it off by a comma.
EXTENDED = tuple(
    verb
    for verb in EVENTS
    if verb in SHORT and "sich" not in verb.flags and (verb.government != ("-",) or "whither" in verb.flags)
)
