"""Whether a hub id can be had at all, asked once: without a network transformers would retry for half a minute."""

from __future__ import annotations

from pathlib import Path

from circuittest.errors import LoadError

#: Seconds that the hub may take to answer.
PATIENCE = 5.0
#: What a revision is made of; weights in other formats are not read, nor is code.
_PATTERNS = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
_FILES = ("config.json", "tokenizer_config.json", "tokenizer.json")


def only_cached(source: str) -> bool:
    """Must files of a hub id or directory be taken from the cache alone, since the hub does not answer?

    No setting of anybody's is changed. Raises LoadError where the cache has nothing either.
    """
    if Path(source).is_dir() or answers(source):
        return False
    from huggingface_hub import try_to_load_from_cache

    if any(isinstance(try_to_load_from_cache(source, file), str) for file in _FILES):
        return True
    raise LoadError(
        f"cannot find {source!r}",
        "there is no such directory here, it is not in the Hugging Face cache, and the hub cannot be reached",
        "check the spelling, name a local directory, or download the model first",
    )


def snapshot(source: str, *, only_cached: bool) -> Path | None:
    """The directory of a hub id's files as transformers would read them, where the cache has them.

    Of a directory, itself.
    """
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    revision = None
    if not only_cached:
        try:
            revision = get_hf_file_metadata(hf_hub_url(source, _FILES[0]), timeout=PATIENCE).commit_hash
        except Exception:  # as below; loading says what is the matter
            return None
    found = try_to_load_from_cache(source, _FILES[0], revision=revision)
    return Path(found).parent if isinstance(found, str) else None


def revision(source: str, revision: str) -> Path:
    """The directory of a hub id's files at a branch, tag or commit, downloaded where they are not in the cache.

    Configuration, tokenizer and safetensors alone. Where the hub does not answer, the cache must have the revision.
    Raises LoadError.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError, RevisionNotFoundError

    try:
        return Path(
            snapshot_download(
                source,
                revision=revision,
                allow_patterns=_PATTERNS,
                etag_timeout=PATIENCE,
                local_files_only=not answers(source),
            )
        )
    except LocalEntryNotFoundError as error:
        raise LoadError(
            f"cannot find revision {revision!r} of {source!r}",
            "it is not in the Hugging Face cache, and the hub cannot be reached",
            "check the spelling, or download it first",
        ) from error
    except RevisionNotFoundError as error:
        raise LoadError(
            f"{source} has no revision {revision!r}", "", "name a branch, a tag or a commit of it"
        ) from error
    except Exception as error:  # as below; what the hub said
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise LoadError(f"cannot get {source}@{revision}", why, "check the name, and your access") from error


def answers(source: str) -> bool:
    """Does the hub answer when it is asked for a model once, whatever it says about it?"""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        get_hf_file_metadata(hf_hub_url(source, _FILES[0]), timeout=PATIENCE)
    except (HfHubHTTPError, HFValidationError):
        return True  # no such model, or no access: transformers says which
    except Exception:  # its transport has changed from version to version, and so have the errors
        return False
    return True
