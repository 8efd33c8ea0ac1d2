// Command fencebench measures fenceproxy beside what people would use instead, and shows which of the fences let a stale write land last.
//
//	go run ./cmd/fencebench --out bench.md --svg bench.svg --json bench.json
//	go run ./cmd/fencebench --smoke
//
// It starts a store in memory and every peer that is installed on free ports of 127.0.0.1, and measures them in turns: one round is every
// workload against every peer, and the order rotates and turns round from one round to the next. Look at the ratios of one round to
// each other, of which it prints the median and the quartiles; the absolute numbers belong to the machine and its neighbours. Nothing is
// asserted about speed.
//
// The same binary is also the parts that must be processes of their own, so that their CPU is counted alone: "fencebench upstream" is
// the store, "fencebench plain-proxy" a tuned httputil.ReverseProxy, and "fencebench load" the load generator.
//
// "fencebench growth" measures something else, and fenceproxy alone: what ten million marks, a million resources and ten thousand idle
// clients cost.
//
// It needs Linux, for /proc. Everything it starts ends with it, and everything it writes but the reports is under one temporary directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(exitCode(os.Stderr, err))
}

// run is the program. args are without its name.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "upstream":
			return runUpstream(ctx, args[1:])
		case "plain-proxy":
			return runPlainProxy(ctx, args[1:])
		case "load":
			return runLoad(ctx, stdin, stdout)
		case "growth":
			return runGrowth(ctx, args[1:], stdout, stderr)
		}
	}
	opts, err := parseOptions(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	return bench(ctx, opts, stdout, stderr)
}

// usageError is a mistake on the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// exitCode prints an error and returns the exit code for it.
func exitCode(stderr io.Writer, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "fencebench: error: %v\n", err)
	if _, ok := errors.AsType[*usageError](err); ok {
		return 2
	}
	return 1
}
