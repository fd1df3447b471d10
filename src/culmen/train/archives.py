"""Adapters that a Tinker-compatible server keeps, fetched as the archive it packs them into."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

from culmen.core.errors import Unavailable, UserError

_ADAPTER = "adapter_config.json"


def download(url: str, path: str, folder: Path) -> None:
    """Unpack the checkpoint `tinker://RUN/KIND/NAME` of the server at `url` into `folder`, without the archive's own
    top folders. Raises `UserError` for the managed service, whose program does this."""
    if not url:
        raise UserError(
            "the managed service hands out adapters itself", where=path, fix=f"tinker checkpoint download {path}"
        )
    import httpx2

    run, *_, name = path.removeprefix("tinker://").split("/")
    place = f"{url}/api/v1/training_runs/{run}/checkpoints/{name}/archive"
    key = os.environ.get("TINKER_API_KEY", "tml-self-hosted")
    try:
        got = httpx2.get(place, headers={"X-API-Key": key}, follow_redirects=True, timeout=600.0).raise_for_status()
    except httpx2.HTTPError as error:
        raise Unavailable(f"the server does not hand out the adapter: {error}", where=place) from error
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(got.content)) as archive:
        files = [one for one in archive.getmembers() if one.isfile()]
        top = next((Path(one.name).parent for one in files if Path(one.name).name == _ADAPTER), None)
        if top is None:
            raise UserError("the server's archive holds no adapter", where=place, fix="ask whoever runs the server")
        for one in files:
            if Path(one.name).parent == top and (content := archive.extractfile(one)) is not None:
                (folder / Path(one.name).name).write_bytes(content.read())
