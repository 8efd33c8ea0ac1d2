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
			return nil, onUsageError(c, fmt.Errorf("flag %s: %w", name, err), true)
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

// nearest returns the name in known that differs from got by at most two letters, or "".
func nearest(got string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		d := edits(got, k)
		if len(got) > 2 && strings.HasPrefix(k, got) {
			d = min(d, 2)
		}
		if d < least && d < len(k)-1 {
			best, least = k, d
		}
	}
	return best
}

// edits counts the letters to be inserted, removed, replaced or swapped with their neighbour to make b of a.
func edits(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(row[j-1]+1, last[j]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
