package probe_test

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/probe"
)

func TestVerdict(t *testing.T) {
	holds := func(text string) probe.Content { return probe.NewContent(text, true, true) }
	nothing, mute := probe.NewContent("", false, true), probe.NewContent("", false, false)
	for _, tt := range []struct {
		name         string
		status       int
		plain, other probe.Content
		want         probe.Verdict
	}{
		{"replaced", 204, holds("B"), holds("B"), probe.Same},
		{"replaced, and the other spelling gives nothing", 204, holds("B"), nothing, probe.Same},
		{"replaced in spite of a refusal", 400, holds("B"), nothing, probe.Same},
		{"replaced without an answer", 0, holds("B"), holds("B"), probe.Same},
		{"gone", 201, nothing, holds("B"), probe.Same},
		{"mixed", 201, holds("BA"), holds("BA"), probe.Same},
		{"two objects", 201, holds("A"), holds("B"), probe.Other},
		{"two objects, and an odd status", 301, holds("A"), holds("B"), probe.Other},
		{"refused", 400, holds("A"), nothing, probe.Refused},
		{"refused, and reads are not", 409, holds("A"), holds("A"), probe.Refused},
		{"redirected", 307, holds("A"), holds("A"), probe.Refused},
		{"no answer", 0, holds("A"), mute, probe.Refused},
		{"accepted and found nowhere", 200, holds("A"), nothing, probe.Unclear},
		{"accepted and without effect", 200, holds("A"), holds("A"), probe.Unclear},
		{"the plain one cannot be read", 201, mute, holds("B"), probe.Unclear},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := probe.NewSighting("A", "B", tt.status, tt.plain, tt.other).Verdict(); got != tt.want {
				t.Errorf("verdict %s; want %s", got, tt.want)
			}
		})
	}
}

// TestSpellings checks that each spelling is one, and stays in its folder and, without folders, behind its prefix.
func TestSpellings(t *testing.T) {
	for id, p := range probe.Paths("/db", "scratch-f1.txt") {
		plain, other := p[0], p[1]
		host := strings.HasPrefix(id, "host") || strings.HasPrefix(id, "absolute")
		if (plain == other) != host {
			t.Errorf("%s: %q and %q", id, plain, other)
		}
		if !strings.HasPrefix(plain, "/db/scratch-f1.tx") || !strings.HasPrefix(other, "/db") || !strings.Contains(other, "scratch-f1.tx") {
			t.Errorf("%s: %q and %q leave their place", id, plain, other)
		}
	}
}
