"""TensorBoard with the overview as start page and automatic reload: `python -m …exporters.board --logdir …`.

TensorBoard's page reloads its data only where each viewer switched that on. A script of our own, from the same server,
does so for a viewer who never chose; nothing else of its page is changed.
"""

from collections.abc import Callable, Iterable
from typing import Any

from absl import app as absl_app
from tensorboard import default, main_lib, program

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

SCRIPT = "capibara-live.js"
_LIVE = b"""(() => {
  const name = "_tb_global_settings";
  const kept = JSON.parse(localStorage.getItem(name) || "{}");
  if (kept.autoReload === undefined) localStorage.setItem(name, JSON.stringify({...kept, autoReload: true}));
  if (!location.hash) location.replace("#custom_scalars");
})();
"""
_HEAD = b"<head>"


def live(inner: Application) -> Application:
    """TensorBoard's application, with the script in its page."""

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == f"/{SCRIPT}":
            start("200 OK", [("Content-Type", "text/javascript; charset=utf-8"), ("Content-Length", str(len(_LIVE)))])
            return [_LIVE]
        if path not in ("/", "/index.html"):
            return inner(environ, start)
        began: list[Any] = []
        plain = {**environ, "HTTP_ACCEPT_ENCODING": "identity"}
        page = b"".join(inner(plain, lambda status, headers, *_: began.extend((status, headers))))
        page = page.replace(_HEAD, _HEAD + f'<script src="{SCRIPT}"></script>'.encode(), 1)
        status, headers = began
        kept = [(name, value) for name, value in headers if name.lower() != "content-length"]
        start(status, [*kept, ("Content-Length", str(len(page)))])
        return [page]

    return answer


def main() -> None:
    """Run it, with TensorBoard's own options."""
    main_lib.global_init()
    board = program.TensorBoard(
        plugins=default.get_plugins(),
        server_class=lambda inner, flags: program.create_port_scanning_werkzeug_server(live(inner), flags),
    )
    absl_app.run(board.main, flags_parser=board.configure)


if __name__ == "__main__":
    main()
