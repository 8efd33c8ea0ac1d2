package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// arguments returns a command's arguments and lets flags stand behind them, as people are used to from curl: urfave/cli stops at the
// first argument. "--" ends the flags.
func arguments(c *cli.Context) (args []string, err error) {
	rest := c.Args().Slice()
	for i := 0; i < len(rest); i++ {
		name, value, has := strings.Cut(rest[i], "=")
		switch {
		case rest[i] == "--":
			return append(args, rest[i+1:]...), nil
		case !strings.HasPrefix(name, "-") || len(name) < 2:
			args = append(args, rest[i])
			continue
		}
		flag := lookup(c.Command.Flags, strings.TrimLeft(name, "-"))
		if flag == nil {
			return nil, onUsageError(c, fmt.Errorf("flag provided but not defined: -%s", strings.TrimLeft(name, "-")), true)
		}
		if !has {
			value = "true"
			if _, isBool := flag.(*cli.BoolFlag); !isBool {
				if i++; i == len(rest) {
					return nil, usagef("%s needs a value", name)
				}
				value = rest[i]
			}
		}
		if err := c.Set(flag.Names()[0], value); err != nil {
			return nil, onUsageError(c, fmt.Errorf("invalid value %q for flag -%s: %w", value, flag.Names()[0], err), true)
		}
	}
	return args, nil
}

func lookup(flags []cli.Flag, name string) cli.Flag {
	i := slices.IndexFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	if i < 0 {
		return nil
	}
	return flags[i]
}
