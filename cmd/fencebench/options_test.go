package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseOptions(t *testing.T) {
	o, err := parseOptions([]string{"--peers", "nginx, fenceproxy", "--workloads=same", "--smoke"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.peers, []string{"nginx", "fenceproxy"}) || !slices.Equal(o.workloads, []string{"same"}) || o.rounds != 1 || o.cell > time.Second {
		t.Errorf("got %+v; want two peers, one workload, one short round", o)
	}
	for _, tt := range []struct{ args, want string }{
		{"--peers caddy", "caddy"}, {"--workloads w9", "w9"}, {"--load hey", "hey"}, {"--rounds 0", "above 0"}, {"extra", "extra"}, {"--no-such-flag", "--help"},
	} {
		_, err := parseOptions(strings.Fields(tt.args), io.Discard)
		if _, ok := errors.AsType[*usageError](err); !ok || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v; want a usage error with %q", tt.args, err, tt.want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	var stderr bytes.Buffer
	if got := exitCode(&stderr, run(context.Background(), []string{"--peers", "caddy"}, nil, io.Discard, io.Discard)); got != 2 {
		t.Errorf("an unknown peer: got exit code %d; want 2", got)
	}
	if !strings.HasPrefix(stderr.String(), "fencebench: error: --peers:") {
		t.Errorf("got %q; want the error", stderr.String())
	}
	if got := exitCode(io.Discard, run(context.Background(), []string{"--help"}, nil, io.Discard, io.Discard)); got != 0 {
		t.Errorf("--help: got exit code %d; want 0", got)
	}
	if got := exitCode(io.Discard, run(context.Background(), []string{"--fenceproxy", "/no/such/binary"}, nil, io.Discard, io.Discard)); got != 1 {
		t.Errorf("a missing binary: got exit code %d; want 1", got)
	}
}

func TestCommandLineCanBeRepeated(t *testing.T) {
	got := commandLine(&options{args: []string{"--out", "/tmp/x/bench.md", "--peers", "a b", "--marks", ""}})
	if want := "go run ./cmd/fencebench --out bench.md --peers 'a b' --marks ''"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}
