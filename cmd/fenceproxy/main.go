// Command fenceproxy stands in front of an HTTP store, reads a fencing token from each write, keeps the highest one per resource and
// rejects lower ones. See the README, or run "fenceproxy demo".
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	err := run(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr)
	os.Exit(report(os.Stderr, err))
}

// run runs the command that args name. args[0] is the name of the program.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	return newApp(stdin, stdout, stderr).RunContext(ctx, args)
}

// Exit codes.
const (
	exitDone    = 0
	exitFailure = 1
	exitUsage   = 2
)

// usageError is a mistake on the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// hintedError is an error with a next step.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

func withHint(err error, hint string) error { return &hintedError{err, hint} }

func hintOf(err error) string {
	if hinted, ok := errors.AsType[*hintedError](err); ok {
		return hinted.hint
	}
	return ""
}

// report prints an error and returns the exit code for it.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return exitDone
	}
	if status, ok := errors.AsType[*statusError](err); ok {
		return status.code
	}
	fmt.Fprintf(stderr, "fenceproxy: error: %v\n", err)
	if hint := hintOf(err); hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", hint)
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	return exitFailure
}
