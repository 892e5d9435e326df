"""``completion``: what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .answers import NearChoice


@click.command()
@click.argument("shell", type=NearChoice(["bash", "zsh", "fish"]))
def completion(*, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
        eval "$(sa-outbox completion bash)"            in ~/.bashrc
        eval "$(sa-outbox completion zsh)"             in ~/.zshrc
        sa-outbox completion fish > ~/.config/fish/completions/sa-outbox.fish
    """
    found = get_completion_class(shell)
    root = click.get_current_context().find_root()
    if found is None:
        raise click.ClickException(f"click has no completion for {shell}")
    script = found(root.command, {}, "sa-outbox", "_SA_OUTBOX_COMPLETE")
    click.echo(script.source())
