package tokenstore_test

import (
	"bufio"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// TestKillLosesNoAcknowledgedMark kills a process that advances marks, again and again on one store, and compares what it had
// acknowledged with what is there.
func TestKillLosesNoAcknowledgedMark(t *testing.T) {
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	dir := t.TempDir()
	closeStore(t, openStore(t, dir, tokenstore.Options{}), true)
	acked := map[fencing.Resource]fencing.Token{}
	for round := range rounds {
		victim := child(t, "load", dir)
		victim.Stderr = os.Stderr
		out, err := victim.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		if round%2 == 1 { // on a busy machine it could otherwise be killed each time before it has opened the store
			_, _ = lines.Peek(1) // or it has failed, which the next open shows
		}
		time.AfterFunc(time.Duration(20+rand.IntN(600))*time.Millisecond, func() { _ = victim.Process.Kill() })
		n := 0
		for r, tok := range scanMarks(t, lines) {
			n++
			if acked[r].Less(tok) {
				acked[r] = tok
			}
		}
		_, _ = io.Copy(io.Discard, lines)
		_ = victim.Wait()
		if round%3 == 2 {
			continue // the next victim recovers by itself
		}
		s := openStore(t, dir, tokenstore.Options{MustExist: true})
		if n > 0 && !s.UncleanStop() {
			t.Error("a kill looks like a clean stop")
		}
		lost := 0
		for r, want := range acked {
			m, ok, err := s.Load(r)
			if err != nil {
				t.Fatal(err)
			}
			if !ok || m.Token.Less(want) {
				lost++
			}
		}
		if lost > 0 {
			t.Errorf("round %d: %d of %d marks are lower than acknowledged", round, lost, len(acked))
		}
		closeStore(t, s, round%2 == 0)
	}
	if len(acked) == 0 {
		t.Error("no victim acknowledged anything")
	}
	sum := uint64(0)
	for _, tok := range acked {
		sum += tok.Lo
	}
	t.Logf("%d kills, %d acknowledged advances", rounds, sum)
}
