"""The public corpora that `get_dataset` knows by name: where their archives are, and which files are which text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Archive:
    """A file on the web. Without a known checksum the first download is trusted and held to from then on."""

    url: str
    sha256: str | None = None


@dataclass(frozen=True)
class Part:
    """One parallel text: for each side its files, put together, each written "archive:path inside it"."""

    name: str
    source: tuple[str, ...]
    target: tuple[str, ...]


@dataclass(frozen=True)
class Dataset:
    """A corpus as people cite it."""

    name: str
    languages: tuple[str, str]
    parts: tuple[Part, ...]
    homepage: str
    """Where its terms of use are."""
    cite: str
    note: str = ""

    def __str__(self) -> str:
        train = ", ".join(part.name.removeprefix("train.") for part in self.parts if part.name.startswith("train"))
        note = f" {self.note}" if self.note else ""
        return f"{self.name:16} {train}; cite {self.cite}; terms: {self.homepage}.{note}"


STATMT, DATA = "https://www.statmt.org", "https://data.statmt.org"
MULTI30K_COMMIT = "c9be912dc05a3ebf9ae5bb5f7f58c1791cda43ab"
MULTI30K = f"https://raw.githubusercontent.com/multi30k/dataset/{MULTI30K_COMMIT}/data/task1/raw"
IWSLT17 = "https://huggingface.co/datasets/IWSLT/iwslt2017/resolve/main/data/2017-01-trnted/texts"

# The checksums are those that TensorFlow Datasets publishes for the same files.
ARCHIVES = {
    "europarl-v7": Archive(f"{STATMT}/wmt13/training-parallel-europarl-v7.tgz",
                           "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7"),
    "commoncrawl": Archive(f"{STATMT}/wmt13/training-parallel-commoncrawl.tgz",
                           "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5"),
    "news-commentary-v9": Archive(f"{STATMT}/wmt14/training-parallel-nc-v9.tgz",
                                  "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485"),
    "un-2000": Archive(f"{STATMT}/wmt13/training-parallel-un.tgz"),
    "giga-fren": Archive(f"{STATMT}/wmt10/training-giga-fren.tar"),
    "europarl-v8-16": Archive(f"{DATA}/wmt16/translation-task/training-parallel-ep-v8.tgz",
                              "8917bd3bef3bc894c8519ca1f8a4c7c330aad08a1263655a9d99ee13d532e3c7"),
    "setimes-en-ro": Archive("https://object.pouta.csc.fi/OPUS-SETIMES/v2/moses/en-ro.txt.zip"),
    "europarl-v8-18": Archive(f"{DATA}/wmt18/translation-task/training-parallel-ep-v8.tgz",
                              "953eaf7f24dcfc87eff6845d13ec6ca8acbee0ccf7edf4063b8b94e943933a96"),
    "rapid2016": Archive(f"{DATA}/wmt18/translation-task/rapid2016.tgz",
                         "41557dd5d8f0ed3a6d98bce3b798b1a9d3b68361eb99d902329ddbb943a6b55a"),
    "paracrawl-v1-en-fi": Archive("https://s3.amazonaws.com/web-language-models/paracrawl/release1/"
                                  "paracrawl-release1.en-fi.zipporah0-dedup-clean.tgz",
                                  "ce3b46e928d37ae02ab8ce7e0ae0e1f89d1aed5e60271056913e35ff742e65ff"),
    "news-commentary-v13": Archive(f"{DATA}/wmt18/translation-task/training-parallel-nc-v13.tgz",
                                   "17992b7e919cfb754c60f4e754148bc23b80706ad0ed7b34150831a554b40c91"),
    "un-v1-en-zh": Archive("https://storage.googleapis.com/tfds-data/downloads/uncorpus/UNv1.0.en-zh.tar.gz",
                           "6f9c6401d5f0a49b20661324570d99fb86822d82f974748a361e19b9b886dd49"),
    "wmt-dev": Archive(f"{DATA}/wmt19/translation-task/dev.tgz",
                       "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7"),
    "iwslt14-de-en": Archive("https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"),
    "iwslt17-en-de": Archive(f"{IWSLT17}/en/de/en-de.zip"),
    "iwslt17-en-fr": Archive(f"{IWSLT17}/en/fr/en-fr.zip"),
    **{f"multi30k-{name}.{language}": Archive(f"{MULTI30K}/{name}.{language}.gz")
       for name in ("train", "val", "test_2016_flickr") for language in ("en", "de", "fr")},
}  # fmt: skip


def part(name: str, archive: str, pattern: str, source: str, target: str) -> Part:
    """A part whose two files differ only in the language at {}."""
    return Part(name, (f"{archive}:{pattern.format(source)}",), (f"{archive}:{pattern.format(target)}",))


def news(name: str, test: str, source: str, target: str, other: str) -> Part:
    """A WMT news set in SGML, whose files are named after the direction into English."""
    pair = f"{other}en"
    files = {other: f"wmt-dev:dev/{test}-{pair}-src.{other}.sgm", "en": f"wmt-dev:dev/{test}-{pair}-ref.en.sgm"}
    return Part(name, (files[source],), (files[target],))


def iwslt(name: str, archive: str, tests: tuple[str, ...], pair: str, source: str, target: str) -> Part:
    """TED development or test sets of several years as one part."""
    sides = (tuple(f"{archive}:{test}.{pair}.{side}.xml" for test in tests) for side in (source, target))
    return Part(name, *sides)


def wmt14(other: str, *more: Part) -> Dataset:
    """The WMT 2014 task from English, with further training parts in `more`."""
    pair = f"{other}-en"
    parts = (
        part("train.europarl-v7", "europarl-v7", f"training/europarl-v7.{pair}.{{}}", "en", other),
        part("train.commoncrawl", "commoncrawl", f"commoncrawl.{pair}.{{}}", "en", other),
        part("train.news-commentary-v9", "news-commentary-v9", f"training/news-commentary-v9.{pair}.{{}}", "en", other),
        *more,
        part("valid", "wmt-dev", "dev/newstest2013.{}", "en", other),
        news("test", "newstest2014", "en", other, other),
    )
    homepage = "https://www.statmt.org/wmt14/translation-task.html"
    return Dataset(f"wmt14-en-{other}", ("en", other), parts, homepage, "Bojar et al. (2014)")


def iwslt17(other: str) -> Dataset:
    """The TED talks of IWSLT 2017 from English."""
    name, pair = f"iwslt17-en-{other}", f"en-{other}"
    years = tuple(f"IWSLT17.TED.tst{year}" for year in range(2010, 2016))
    parts = (
        part("train", name, f"train.tags.{pair}.{{}}", "en", other),
        iwslt("valid", name, ("IWSLT17.TED.dev2010",), pair, "en", other),
        iwslt("test", name, years, pair, "en", other),
    )
    note = "The test set is tst2010 to tst2015 together."
    return Dataset(name, ("en", other), parts, "https://wit3.fbk.eu", "Cettolo et al. (2017)", note)


def multi30k(other: str) -> Dataset:
    """The image captions of Multi30k from English."""
    parts = tuple(
        Part(name, (f"multi30k-{file}.en:",), (f"multi30k-{file}.{other}:",))
        for name, file in (("train", "train"), ("valid", "val"), ("test", "test_2016_flickr"))
    )
    homepage = "https://github.com/multi30k/dataset"
    return Dataset(f"multi30k-en-{other}", ("en", other), parts, homepage, "Elliott et al. (2016)")


DATASETS = {dataset.name: dataset for dataset in (
    wmt14("de"),
    wmt14("fr",
          part("train.un-2000", "un-2000", "un/undoc.2000.fr-en.{}", "en", "fr"),
          part("train.giga-fren", "giga-fren", "giga-fren.release2.fixed.{}.gz", "en", "fr")),
    Dataset("wmt16-ro-en", ("ro", "en"), (
        part("train.europarl-v8", "europarl-v8-16", "training-parallel-ep-v8/europarl-v8.ro-en.{}", "ro", "en"),
        part("train.setimes2", "setimes-en-ro", "SETIMES.en-ro.{}", "ro", "en"),
        news("valid", "newsdev2016", "ro", "en", "ro"),
        news("test", "newstest2016", "ro", "en", "ro"),
    ), "https://www.statmt.org/wmt16/translation-task.html", "Bojar et al. (2016)"),
    Dataset("wmt18-en-fi", ("en", "fi"), (
        part("train.europarl-v8", "europarl-v8-18", "training/europarl-v8.fi-en.{}", "en", "fi"),
        part("train.rapid2016", "rapid2016", "rapid2016.en-fi.{}", "en", "fi"),
        part("train.paracrawl-v1", "paracrawl-v1-en-fi", "paracrawl-release1.en-fi.zipporah0-dedup-clean.{}",
             "en", "fi"),
        news("valid", "newstest2017", "en", "fi", "fi"),
        news("test", "newstest2018", "en", "fi", "fi"),
    ), "https://www.statmt.org/wmt18/translation-task.html", "Bojar et al. (2018)", "Wiki titles are left out."),
    Dataset("wmt18-zh-en", ("zh", "en"), (
        part("train.news-commentary-v13", "news-commentary-v13", "news-commentary-v13.zh-en.{}", "zh", "en"),
        part("train.un-v1", "un-v1-en-zh", "en-zh/UNv1.0.en-zh.{}", "zh", "en"),
        news("valid", "newstest2017", "zh", "en", "zh"),
        news("test", "newstest2018", "zh", "en", "zh"),
    ), "https://www.statmt.org/wmt18/translation-task.html", "Bojar et al. (2018)",
        "The CWMT part of the task needs a registration and is left out."),
    Dataset("iwslt14-de-en", ("de", "en"), (
        part("train", "iwslt14-de-en", "train.tags.de-en.{}", "de", "en"),
        iwslt("valid", "iwslt14-de-en", ("IWSLT14.TED.dev2010", "IWSLT14.TEDX.dev2012"), "de-en", "de", "en"),
        iwslt("test", "iwslt14-de-en", tuple(f"IWSLT14.TED.tst{y}" for y in (2010, 2011, 2012)), "de-en", "de", "en"),
    ), "https://wit3.fbk.eu", "Cettolo et al. (2014)",
        "fairseq splits it otherwise: valid from train, all sets as test."),
    iwslt17("de"),
    iwslt17("fr"),
    multi30k("de"),
    multi30k("fr"),
)}  # fmt: skip
