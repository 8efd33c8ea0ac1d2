package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestGrowthSmall is a whole run with small numbers. It says nothing about time or memory.
func TestGrowthSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the proxy a few times: not with -short")
	}
	needProc(t)
	work := t.TempDir()
	var stderr bytes.Buffer
	o, err := parseGrowthOptions(strings.Fields("--marks 0,1000 --touched 200 --clients 50 --writers 4 --starts 1 --rounds 2 --load 50ms --dir "+work), &stderr)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	r, err := measureGrowth(t.Context(), o, &stderr)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	t.Logf("the run took %s:\n%s", time.Since(begin).Round(time.Millisecond), stderr.String())
	if f := r.idle; f.open != 50 || f.beside.writes != idleWrites || f.after.own <= 0 {
		t.Errorf("idle: got %+v; want 50 connections, %d writes and some memory", f, idleWrites)
	}
	if last := r.touched[len(r.touched)-1]; last.touched != 200 || last.entries != 0 || last.memory.own <= 0 {
		t.Errorf("touched: got %+v; want 200, none of them in the gate, and some memory", last)
	}
	if len(r.stores) != 2 || r.stores[0].marks != 0 || r.stores[1].marks != 1000 {
		t.Fatalf("got %+v; want two stores", r.stores)
	}
	for _, f := range r.stores {
		for name, rate := range map[string]rate{"new": f.through[0], "existing": f.through[1], "alone, new": f.alone[0], "alone, existing": f.alone[1]} {
			if rate.writes == 0 {
				t.Errorf("%d marks, %s: got no write; want some", f.marks, name)
			}
		}
		if f.disk <= 0 || f.start.memory.own <= 0 || f.start.ready <= 0 || f.afterKill.ready <= 0 || f.stop <= 0 {
			t.Errorf("%d marks: got %+v; want every figure", f.marks, f)
		}
	}
	text := growthMarkdown(r)
	for _, want := range []string{"| marks | 0 | 1,000 |", "| 200 |", "| idle connections | 0 | 50 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s; want %q in it", text, want)
		}
	}
	nothingLeft(t, work)
}

func TestParseGrowthOptions(t *testing.T) {
	o, err := parseGrowthOptions([]string{"--marks", "0, 500", "--clients=7"}, io.Discard)
	if err != nil || !slices.Equal(o.marks, []int{0, 500}) || o.clients != 7 || o.touched != 1_000_000 {
		t.Errorf("got %+v, %v; want two numbers of marks, 7 clients and a million resources", o, err)
	}
	for _, tt := range []struct{ args, want string }{
		{"--marks 1e6", "1e6"}, {"--marks -1", "-1"}, {"--marks 63", "64 writers"}, {"--writers 0", "above"}, {"--clients -1", "below 0"}, {"extra", "extra"}, {"--no-such-flag", "growth --help"},
	} {
		err := run(context.Background(), append([]string{"growth"}, strings.Fields(tt.args)...), nil, io.Discard, io.Discard)
		if _, ok := errors.AsType[*usageError](err); !ok || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v; want a usage error with %q", tt.args, err, tt.want)
		}
	}
}

func TestMemoryOf(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "7"), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(root, "7", "status"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("Name:\tx\nVmRSS:\t 30 kB\nRssAnon:\t 20 kB\nRssFile:\t 10 kB\nRssShmem:\t 0 kB\n")
	got, err := memoryOf(root, 7)
	if want := (memory{own: 20 << 10, mapped: 10 << 10}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	write("Name:\tx\nRssAnon:\t 20 kB\n")
	if _, err := memoryOf(root, 7); err == nil {
		t.Error("a status without RssFile: got no error; want one")
	}
}

func TestParseMetrics(t *testing.T) {
	page := []byte("# HELP a_bytes text\n# TYPE a_bytes gauge\na_bytes 1.5e+06\nb{x=\"y\"} 2\nb 3\n")
	got, err := parseMetrics(page, []string{"b", "a_bytes"})
	if err != nil || !slices.Equal(got, []float64{3, 1.5e6}) {
		t.Errorf("got %v, %v; want 3 and 1.5e6", got, err)
	}
	if _, err := parseMetrics(page, []string{"c"}); err == nil {
		t.Error("a metric that is not there: got no error; want one")
	}
}

func TestExistingResourcesBelongToOneWriter(t *testing.T) {
	const writers, marks = 4, 1000
	g := &growth{o: &growthOptions{writers: writers}}
	stored := map[string]bool{}
	for i := range marks {
		stored[storeName(i)] = true
	}
	name := g.existing(marks, "", rate{})
	owner := map[string]int{}
	for w := range writers {
		for n := range 2 * marks / writers {
			r := name(w, n)
			if was, ok := owner[r]; ok && was != w || !stored[r] {
				t.Fatalf("write %d of writer %d goes to %q, of writer %d, stored %v; want a stored one of its own", n, w, r, was, stored[r])
			}
			owner[r] = w
		}
	}
	if len(owner) != marks {
		t.Errorf("got writes to %d resources; want all %d", len(owner), marks)
	}
}

func TestNumber(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 10_000_000: "10,000,000", -1234: "-1,234", -123: "-123"} {
		if got := number(n); got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	}
}
