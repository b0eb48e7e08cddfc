"""Completion scripts for bash, zsh and fish, made from the commands themselves."""

from __future__ import annotations

import argparse

SHELLS = ("bash", "zsh", "fish")


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for a shell: `eval "$(thetastream completion bash)"`."""
    commands = _commands(parser)
    if shell == "fish":
        return _fish(commands)
    words = _bash(commands)
    return f"autoload -U +X bashcompinit && bashcompinit\n{words}" if shell == "zsh" else words


def _commands(parser: argparse.ArgumentParser) -> dict[str, tuple[list[str], list[str]]]:
    """Each command with its options and the values of its first argument."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                options = [text for item in sub._actions for text in item.option_strings]
                values = [
                    str(choice)
                    for item in sub._actions
                    if not item.option_strings and item.choices
                    for choice in item.choices
                ]
                found[name] = (options, values)
    return found


def _bash(commands: dict[str, tuple[list[str], list[str]]]) -> str:
    cases = "\n".join(
        f'    {name}) words="{" ".join(options + values)}" ;;'
        for name, (options, values) in commands.items()
    )
    return f"""_thetastream() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{" ".join(commands)}" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word") $(compgen -f -- "$word"))
}}
complete -o filenames -F _thetastream thetastream
"""


def _fish(commands: dict[str, tuple[list[str], list[str]]]) -> str:
    lines = [f'complete -c thetastream -n __fish_use_subcommand -a "{" ".join(commands)}" -f']
    for name, (options, values) in commands.items():
        seen = f'-n "__fish_seen_subcommand_from {name}"'
        for option in options:
            if option.startswith("--"):
                lines.append(f"complete -c thetastream {seen} -l {option[2:]}")
        if values:
            lines.append(f'complete -c thetastream {seen} -a "{" ".join(values)}"')
    return "\n".join(lines) + "\n"
