package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// The scripts call the program with --generate-bash-completion, which urfave/cli answers.
const (
	bashCompletion = `_fenceproxy() {
  local cur words
  cur="${COMP_WORDS[COMP_CWORD]}"
  words=("${COMP_WORDS[@]:0:$COMP_CWORD}")
  if [[ "$cur" == -* ]]; then
    local ask="$cur"
    if [[ "$ask" == -- ]]; then ask=-; fi # a bare -- would end the flags
    COMPREPLY=($(compgen -W "$("${words[@]}" "$ask" --generate-bash-completion 2>/dev/null)" -- "$cur"))
  else
    COMPREPLY=($(compgen -W "$("${words[@]}" --generate-bash-completion 2>/dev/null)" -- "$cur"))
  fi
}
complete -o bashdefault -o default -F _fenceproxy fenceproxy
`
	zshCompletion = `#compdef fenceproxy
_fenceproxy() {
  local -a opts
  local cur=${words[-1]}
  if [[ "$cur" == -* ]]; then
    local ask=$cur
    if [[ "$ask" == -- ]]; then ask=-; fi # a bare -- would end the flags
    opts=("${(@f)$(${words[@]:0:#words[@]-1} ${ask} --generate-bash-completion 2>/dev/null)}")
  else
    opts=("${(@f)$(${words[@]:0:#words[@]-1} --generate-bash-completion 2>/dev/null)}")
  fi
  if [[ -n "${opts[1]}" ]]; then _describe 'values' opts; else _files; fi
}
compdef _fenceproxy fenceproxy
`
)

func completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a script for tab completion",
		ArgsUsage: "bash|zsh|fish",
		Description: `  source <(fenceproxy completion bash)
  fenceproxy completion fish > ~/.config/fish/completions/fenceproxy.fish`,
		BashComplete: func(c *cli.Context) { fmt.Fprintln(c.App.Writer, "bash\nzsh\nfish") },
		Action: func(c *cli.Context) error {
			var script string
			switch c.Args().First() {
			case "bash":
				script = bashCompletion
			case "zsh":
				script = zshCompletion
			case "fish":
				var err error
				if script, err = fishCompletion(c.App); err != nil {
					return err
				}
			default:
				return withHint(usagef("completion needs the name of a shell: bash, zsh or fish"), "source <(fenceproxy completion bash)")
			}
			_, err := fmt.Fprint(c.App.Writer, script)
			return err
		},
	}
}

// fishCompletion is what urfave/cli writes, without the backticks around the names of values and without lines that it writes twice.
func fishCompletion(app *cli.App) (string, error) {
	script, err := app.ToFishCompletion()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	seen := map[string]bool{}
	for line := range strings.Lines(strings.ReplaceAll(script, "`", "")) {
		if strings.HasPrefix(line, "complete ") && seen[line] {
			continue
		}
		seen[line] = true
		out.WriteString(line)
	}
	return out.String(), nil
}
