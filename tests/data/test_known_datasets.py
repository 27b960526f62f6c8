"""The table of public corpora: every part is complete and names an archive that is there."""

from rela.data.datasets import list_datasets
from rela.data.known_datasets import ARCHIVES, DATASETS


def test_the_table_is_sound():
    for dataset in list_datasets():
        assert DATASETS[dataset.name] is dataset
        assert dataset.name in str(dataset)
        assert {part.name.partition(".")[0] for part in dataset.parts} == {"train", "valid", "test"}
        for part in dataset.parts:
            assert len(part.source) == len(part.target)
            for references, language in zip((part.source, part.target), dataset.languages, strict=True):
                for reference in references:
                    archive, _, member = reference.partition(":")
                    url = ARCHIVES[archive].url
                    # each side names its own language at the end of its file
                    assert language in (member or url.rpartition("/")[2]).split(".")[-3:]
                    assert url.startswith("https://")
    for archive in ARCHIVES.values():
        assert archive.sha256 is None or len(bytes.fromhex(archive.sha256)) == 32
    used = {ref.partition(":")[0] for d in list_datasets() for p in d.parts for ref in (*p.source, *p.target)}
    assert used == set(ARCHIVES)
