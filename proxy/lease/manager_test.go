package lease_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/lease"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func request(name fencing.Resource, ttl, wait time.Duration) lease.Request {
	return lease.Request{Name: name, TTL: ttl, Wait: wait, Owner: "o"}
}

func acquire(t *testing.T, m *lease.Manager, name fencing.Resource, ttl time.Duration) lease.Grant {
	t.Helper()
	g, err := m.Acquire(t.Context(), request(name, ttl, 0))
	if err != nil {
		t.Fatalf("Acquire(%q): %v", name, err)
	}
	return g
}

func wantHeld(t *testing.T, m *lease.Manager, name fencing.Resource) {
	t.Helper()
	_, err := m.Acquire(t.Context(), request(name, time.Minute, 0))
	if held, ok := errors.AsType[*lease.HeldError](err); !ok || held.Owner != "o" {
		t.Errorf("Acquire(%q): %v; want a HeldError with the owner", name, err)
	}
}

func TestALeaseEndsWhenItsTimeIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		g := acquire(t, m, "r", 10*time.Second)
		if g.Token != 1 || len(g.Secret) < 26 || g.TTL != 10*time.Second {
			t.Errorf("granted %+v", g)
		}
		time.Sleep(9 * time.Second)
		if s := m.Inspect("r"); !s.Held || s.Remaining != time.Second || s.TTL != 10*time.Second || s.Owner != "o" {
			t.Errorf("Inspect = %+v; want a second left", s)
		}
		if ttl, err := m.Renew("r", g.Secret); err != nil || ttl != 10*time.Second {
			t.Errorf("Renew: %v, %v", ttl, err)
		}
		time.Sleep(9 * time.Second)
		wantHeld(t, m, "r")
		if _, err := m.Renew("r", g.Secret); err != nil { // after the time that it had first
			t.Errorf("a second Renew: %v", err)
		}
		time.Sleep(9 * time.Second)
		if s := m.Inspect("r"); s.Remaining != time.Second {
			t.Errorf("Inspect = %+v; want a second left", s)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if _, err := m.Renew("r", g.Secret); !errors.Is(err, lease.ErrGone) {
			t.Errorf("Renew after the end: %v; want ErrGone", err)
		}
		if err := m.Release("r", g.Secret); !errors.Is(err, lease.ErrGone) {
			t.Errorf("Release after the end: %v; want ErrGone", err)
		}
		if next := acquire(t, m, "r", time.Second); next.Token != 2 {
			t.Errorf("granted %d; want 2", next.Token)
		}
	})
}

func TestOnlyTheSecretRenewsAndReleases(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		g := acquire(t, m, "r", time.Minute)
		for _, secret := range []string{"", "x", strings.ToLower(g.Secret), g.Secret + "x", g.Secret[:len(g.Secret)-1]} {
			if _, err := m.Renew("r", secret); !errors.Is(err, lease.ErrNotHolder) {
				t.Errorf("Renew(%q): %v; want ErrNotHolder", secret, err)
			}
			if err := m.Release("r", secret); !errors.Is(err, lease.ErrNotHolder) {
				t.Errorf("Release(%q): %v; want ErrNotHolder", secret, err)
			}
		}
		for name, text := range p.d.notes {
			if strings.Contains(name+text, g.Secret) {
				t.Errorf("the secret is on the disk: %s %s", name, text)
			}
		}
		if err := m.Release("r", g.Secret); err != nil {
			t.Fatal(err)
		}
		if s := m.Stats(); s.Held != 0 || s.Released != 1 || s.Refused != 10 || s.Granted != 1 {
			t.Errorf("Stats = %+v", s)
		}
		if err := m.Release("r", g.Secret); !errors.Is(err, lease.ErrGone) {
			t.Errorf("a second Release: %v; want ErrGone", err)
		}
	})
}

func TestTheMarkIsAtTheTokenBeforeTheGrantIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		p.d.set("r", fencing.Mark{Token: fencing.Token{Epoch: 3, Lo: 33}, Policy: "rides", Format: fencing.Hex})
		g := acquire(t, m, "r", time.Minute)
		mark, _ := p.d.mark("r")
		if g.Token != 34 || mark.Token != (fencing.Token{Epoch: 3, Lo: 34}) || mark.Policy != "rides" || mark.Format != fencing.Hex || mark.By != "lease of o" {
			t.Errorf("granted %d, the mark is %+v; want 34 in its epoch", g.Token, mark)
		}
	})
}

func TestTokensCountOnWhateverBecomesOfTheMark(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		for i, mark := range []fencing.Token{{}, {Lo: 5}, {Lo: 2}, {Epoch: 1}, {Epoch: 1, Lo: 100}, {Epoch: 2, Lo: 1}} {
			if i > 0 {
				p.d.set("r", fencing.Mark{Token: mark})
			}
			g := acquire(t, m, "r", time.Minute)
			if want := []uint64{1, 6, 7, 8, 101, 102}[i]; g.Token != want {
				t.Errorf("with the mark at %v: granted %d; want %d", mark, g.Token, want)
			}
			if now, _ := p.d.mark("r"); now.Token != (fencing.Token{Epoch: mark.Epoch, Lo: g.Token}) {
				t.Errorf("the mark is %v after %d", now.Token, g.Token)
			}
			if err := m.Release("r", g.Secret); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestThereIsNoTokenAboveTheHighest(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		p.d.set("r", fencing.Mark{Token: fencing.Number(lease.MaxToken - 1)})
		g := acquire(t, m, "r", time.Minute)
		if g.Token != lease.MaxToken {
			t.Errorf("granted %d; want the highest", g.Token)
		}
		if err := m.Release("r", g.Secret); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Acquire(t.Context(), request("r", time.Minute, 0)); !errors.Is(err, lease.ErrExhausted) {
			t.Errorf("got %v; want ErrExhausted", err)
		}
		p.d.set("s", fencing.Mark{Token: fencing.Number(1<<64 - 1)})
		if _, err := m.Acquire(t.Context(), request("s", time.Minute, 0)); !errors.Is(err, lease.ErrExhausted) {
			t.Errorf("got %v; want ErrExhausted", err)
		}
		for _, mark := range []fencing.Mark{
			{Token: fencing.Token{Hi: 7, Lo: 1}, Format: fencing.Pair}, {Token: fencing.Token{Lo: 1}, Format: fencing.Pair},
			{Token: fencing.Token{Hi: 7, Lo: 1}, Format: fencing.Decimal}, {Token: fencing.Number(7), Format: 99}, {Token: fencing.Number(7), Format: fencing.Opaque},
		} {
			p.d.set("pair", mark)
			_, err := m.Acquire(t.Context(), request("pair", time.Minute, 0))
			if _, ok := errors.AsType[*lease.RequestError](err); !ok || !strings.Contains(err.Error(), "no single numbers") {
				t.Errorf("with %+v: %v; want a refusal", mark, err)
			}
		}
	})
}

// A name may have a policy whose tokens are ids although no write has left a mark yet.
func TestALeaseThatCouldNotBeUsedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, reason := &process{d: newDisk()}, ""
		m, err := lease.New(lease.Config{Notes: p, Marks: p, Useless: func(r fencing.Resource) string {
			if r == "seats/7" {
				return reason
			}
			return ""
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		g := acquire(t, m, "seats/7", time.Minute)
		reason = "the policy seats has compare: hold"
		for _, wait := range []time.Duration{0, time.Second} { // at once, and before anything is said of the holder
			_, err := m.Acquire(t.Context(), request("seats/7", time.Minute, wait))
			if bad, ok := errors.AsType[*lease.RequestError](err); !ok || bad.Reason != reason {
				t.Errorf("got %v; want a RequestError with the reason", err)
			}
		}
		if mark, _ := p.d.mark("seats/7"); mark.Token.Lo != g.Token {
			t.Errorf("the refusal moved the mark from %d to %d", g.Token, mark.Token.Lo)
		}
		acquire(t, m, "rides/7", time.Minute)
		if _, err := m.Renew("seats/7", g.Secret); err != nil {
			t.Errorf("a lease from before cannot be renewed: %v", err)
		}
		if err := m.Release("seats/7", g.Secret); err != nil {
			t.Errorf("a lease from before cannot be released: %v", err)
		}
	})
}

func TestAMarkThatMovesIsOvertaken(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		p.with(func() { p.races = 3 }) // three times a write has the token that was meant for the grant
		if g := acquire(t, m, "r", time.Minute); g.Token != 4 {
			t.Errorf("granted %d; want 4", g.Token)
		}
		p.with(func() { p.races = 1 << 30 })
		start := time.Now()
		if _, err := m.Acquire(t.Context(), request("s", time.Minute, 0)); !errors.Is(err, lease.ErrOvertaken) || time.Since(start) > 10*time.Second {
			t.Errorf("after %v: %v; want ErrOvertaken", time.Since(start), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := m.Acquire(ctx, request("s", time.Minute, 0)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v; want Canceled", err)
		}
		p.with(func() { p.races = 0 })
		acquire(t, m, "s", time.Minute)
	})
}

// line starts n requests that stand in line one after the other, and returns where their tokens arrive, in the order of the grants.
func line(t *testing.T, m *lease.Manager, n int, wait time.Duration) chan int {
	order := make(chan int, n)
	for i := range n {
		go func() {
			g, err := m.Acquire(t.Context(), request("r", time.Minute, wait))
			if err != nil {
				order <- -1
				return
			}
			order <- i
			_ = m.Release("r", g.Secret)
		}()
		synctest.Wait()
	}
	return order
}

func TestWaitersGetItInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		p.with(func() { p.slow = time.Millisecond })
		g := acquire(t, m, "r", time.Minute)
		order := line(t, m, 20, time.Minute)
		if s := m.Inspect("r"); s.Waiting != 20 || m.Stats().Waiting != 20 {
			t.Errorf("Inspect = %+v; want 20 waiting", s)
		}
		if err := m.Release("r", g.Secret); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if got := <-order; got != i {
				t.Errorf("number %d was served as number %d", got, i)
			}
		}
		time.Sleep(time.Second)
		if s := m.Stats(); s.Waiting != 0 || s.Held != 0 {
			t.Errorf("Stats = %+v", s)
		}
	})
}

func TestExpiryPassesItOn(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		acquire(t, m, "r", 10*time.Second)
		start := time.Now()
		g, err := m.Acquire(t.Context(), request("r", time.Second, time.Minute))
		if err != nil || time.Since(start) != 10*time.Second || g.Token != 2 {
			t.Errorf("after %v: %+v, %v; want it at the end of the first", time.Since(start), g, err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := m.Stats(); s.Expired != 2 || s.Held != 0 {
			t.Errorf("Stats = %+v", s)
		}
	})
}

func TestAWaitIsOverInTime(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		acquire(t, m, "r", time.Minute)
		start := time.Now()
		_, err := m.Acquire(t.Context(), request("r", time.Minute, 3*time.Second))
		held, ok := errors.AsType[*lease.HeldError](err)
		if !ok || time.Since(start) != 3*time.Second || held.Remaining != 57*time.Second {
			t.Errorf("after %v: %v; want a HeldError after 3s", time.Since(start), err)
		}
		if s := m.Stats(); s.Waiting != 0 {
			t.Errorf("Stats = %+v", s)
		}
	})
}

func TestAWaiterThatIsGoneIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		g := acquire(t, m, "r", time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := m.Acquire(ctx, request("r", time.Minute, time.Minute))
			gone <- err
		}()
		synctest.Wait()
		order := line(t, m, 1, time.Minute)
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v; want Canceled", err)
		}
		if err := m.Release("r", g.Secret); err != nil {
			t.Fatal(err)
		}
		if <-order != 0 {
			t.Error("the next in line did not get it")
		}
	})
}

func TestATurnThatComesToOneWhoIsGoneIsPassedOn(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		for range 200 { // who is first, the cancellation or the turn, is anybody's guess
			g := acquire(t, m, "r", time.Minute)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				if h, err := m.Acquire(ctx, request("r", time.Minute, time.Minute)); err == nil {
					_ = m.Release("r", h.Secret)
				}
			}()
			synctest.Wait()
			cancel()
			if err := m.Release("r", g.Secret); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if m.Inspect("r").Held {
				t.Fatal("one who is gone holds it")
			}
		}
	})
}

func TestWhoIsGoneWhenItsTurnComesHoldsNothing(t *testing.T) {
	for _, at := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond} { // the mark is raised; the note is written
		bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
			p.with(func() { p.slow = time.Second })
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(at, cancel)
			if _, err := m.Acquire(ctx, request("r", time.Hour, 0)); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v; want Canceled", err)
			}
			p.with(func() { p.slow = 0 })
			again := p.start(t, 0) // what is on the disk says so too
			defer again.Close()
			if again.Inspect("r").Held || m.Inspect("r").Held {
				t.Error("it is held by nobody that knows the secret")
			}
			if g := acquire(t, m, "r", time.Minute); g.Token != 2 {
				t.Errorf("granted %d; want 2: a token is used up", g.Token)
			}
		})
	}
}

func TestARequestThatDoesNotWaitSitsOutWhatIsUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		acquire(t, m, "r", time.Second)
		p.with(func() { p.slow = time.Second })
		time.Sleep(1500 * time.Millisecond) // it has run out, and that is being noted
		g := acquire(t, m, "r", time.Minute)
		if g.Token != 2 {
			t.Errorf("granted %d; want 2", g.Token)
		}
		if err := m.Release("r", g.Secret); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = m.Acquire(t.Context(), request("r", time.Minute, 0)) }()
		synctest.Wait()
		wantHeld(t, m, "r") // told as soon as the other one has it
		time.Sleep(time.Hour)
		h := acquire(t, m, "r", time.Minute)
		go func() { _ = m.Release("r", h.Secret) }()
		synctest.Wait()
		acquire(t, m, "r", time.Minute) // as soon as it is released
	})
}

func TestALeaseIsOverAtItsEndAlthoughNobodyHasNoticed(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		for range 200 { // who is first, the renewal or the timer, is anybody's guess
			g := acquire(t, m, "r", 10*time.Second)
			time.Sleep(10 * time.Second)
			if _, err := m.Renew("r", g.Secret); !errors.Is(err, lease.ErrGone) {
				t.Fatalf("Renew at the end: %v; want ErrGone", err)
			}
			synctest.Wait()
		}
	})
}

func TestAfterARestartALeaseRunsItsWholeTimeAgain(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		long := fencing.Resource(strings.Repeat("ü", 2000))
		g, h := acquire(t, m, "r", 10*time.Second), acquire(t, m, long, 10*time.Second)
		time.Sleep(8 * time.Second)
		m.Close()
		time.Sleep(time.Hour)
		again := (&process{d: p.d}).start(t, 0)
		defer again.Close()
		if s := again.Inspect("r"); !s.Held || s.Remaining != 10*time.Second || s.Owner != "o" {
			t.Errorf("Inspect = %+v; want the whole time", s)
		}
		time.Sleep(9 * time.Second)
		if _, err := again.Renew("r", g.Secret); err != nil {
			t.Errorf("Renew: %v", err)
		}
		if err := again.Release(long, h.Secret); err != nil {
			t.Errorf("Release: %v", err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		third := (&process{d: p.d}).start(t, 0)
		defer third.Close()
		if s := third.Stats(); s.Held != 0 || s.Known != 2 {
			t.Errorf("Stats = %+v; want what was released or expired to stay so", s)
		}
	})
}

func TestWhatTheDiskRefusesIsNotGranted(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		for _, where := range []*error{&p.fail, &p.notes} {
			*where = lease.ErrNoSpace
			if _, err := m.Acquire(t.Context(), request("r", time.Minute, 0)); !errors.Is(err, lease.ErrNoSpace) {
				t.Errorf("got %v; want ErrNoSpace", err)
			}
			*where = nil
		}
		g := acquire(t, m, "r", 10*time.Second)
		p.with(func() { p.notes = lease.ErrNoSpace })
		if err := m.Release("r", g.Secret); !errors.Is(err, lease.ErrNoSpace) {
			t.Errorf("Release: %v; want ErrNoSpace", err)
		}
		wantHeld(t, m, "r")
		if _, err := m.Renew("r", g.Secret); err != nil {
			t.Errorf("Renew: %v; it writes nothing", err)
		}
		p.with(func() { p.slow = 20 * time.Second }) // it runs out while it is released in vain
		if err := m.Release("r", g.Secret); !errors.Is(err, lease.ErrNoSpace) {
			t.Errorf("Release: %v; want ErrNoSpace", err)
		}
		synctest.Wait() // its end is being noted
		time.Sleep(time.Minute)
		p.with(func() { p.slow, p.notes = 0, nil })
		acquire(t, m, "r", time.Minute)
	})
}

func TestANoteThatCannotBeReadStopsTheStart(t *testing.T) {
	for name, text := range map[string]string{
		"lease/a": "{", "lease/b": `{"token": 0}`, "lease/c": `{"token": 7, "secret": "x", "ttl": "x"}`, "lease/d": `{"token": 7, "secret": "x", "ttl": "1ns"}`,
		"lease/e": `{"token": -1}`, "lease-floor": "x",
	} {
		p := &process{d: newDisk()}
		p.d.notes[name] = text
		if _, err := lease.New(lease.Config{Notes: p, Marks: p}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s = %s: %v; want an error that names it", name, text, err)
		}
	}
}

func TestThereAreNoMoreLeasesThanAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &process{d: newDisk()}
		m := p.start(t, 3)
		defer m.Close()
		p.d.set("high", fencing.Mark{Token: fencing.Number(1000)})
		var grants []lease.Grant
		for _, name := range []fencing.Resource{"a", "high", "c"} {
			grants = append(grants, acquire(t, m, name, time.Minute))
		}
		if _, err := m.Acquire(t.Context(), request("d", time.Minute, 0)); !errors.Is(err, lease.ErrTooMany) {
			t.Errorf("a fourth: %v; want ErrTooMany", err)
		}
		for _, g := range grants {
			if err := m.Release(g.Name, g.Secret); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 5 { // the lowest go first
			name := fencing.Resource(fmt.Sprint("new", i))
			if g := acquire(t, m, name, time.Second); g.Token > 10 {
				t.Errorf("%s was granted with %d; want a low token, as long as there are low ones to forget", name, g.Token)
			} else if err := m.Release(name, g.Secret); err != nil {
				t.Fatal(err)
			}
		}
		p.d.set("a", fencing.Mark{Token: fencing.Number(0)})
		if g := acquire(t, m, "a", time.Minute); g.Token < 2 {
			t.Errorf("a was granted with %d again", g.Token)
		}
		if n := len(p.d.noteNames()); n != 3 {
			t.Errorf("%d notes; want 3", n)
		}
		if text := p.d.notes["lease-floor"]; text == "" {
			t.Error("no floor is noted")
		}
	})
}

func TestAStopTellsThoseWhoWait(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		g := acquire(t, m, "r", time.Minute)
		order := line(t, m, 3, time.Minute)
		start := time.Now()
		m.Stop()
		for range 3 {
			if <-order != -1 {
				t.Error("one who waited got it")
			}
		}
		if time.Since(start) != 0 {
			t.Error("it took time")
		}
		if _, err := m.Acquire(t.Context(), request("s", time.Minute, time.Minute)); !errors.Is(err, lease.ErrClosed) {
			t.Errorf("got %v; want ErrClosed", err)
		}
		if _, err := m.Renew("r", g.Secret); err != nil {
			t.Errorf("Renew: %v", err)
		}
		if err := m.Release("r", g.Secret); err != nil {
			t.Errorf("Release: %v", err)
		}
	})
}

func TestThePackageKnowsNeitherDiskNorProxy(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		own := strings.HasPrefix(dep, "github.com/fenceproxy/") && !strings.HasSuffix(dep, "/proxy/lease") && !strings.HasSuffix(dep, "/tokenstore/fencing")
		if own || strings.Contains(dep, "badger") || strings.Contains(dep, "goproxy") {
			t.Errorf("it depends on %s", dep)
		}
	}
}

func TestRequestsOutOfRangeAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		for says, r := range map[string]lease.Request{
			"resource":               {TTL: time.Second},
			"the ttl 999ms is out":   {Name: "r", TTL: 999 * time.Millisecond},
			"the ttl 24h0m0.001s":    {Name: "r", TTL: 24*time.Hour + time.Millisecond},
			"the wait -1s is out":    {Name: "r", TTL: time.Second, Wait: -time.Second},
			"the wait 5m0.001s":      {Name: "r", TTL: time.Second, Wait: lease.MaxWait + time.Millisecond},
			"the owner is text of":   {Name: "r", TTL: time.Second, Owner: strings.Repeat("x", 129)},
			"without control char":   {Name: "r", TTL: time.Second, Owner: "a\nb"},
			"owner is text of at mo": {Name: "r", TTL: time.Second, Owner: "\xff"},
		} {
			_, err := m.Acquire(t.Context(), r)
			if _, ok := errors.AsType[*lease.RequestError](err); !ok || !strings.Contains(err.Error(), says) {
				t.Errorf("%+v: %v; want %q", r, err, says)
			}
		}
	})
}

func TestThereIsABoundOnWaiters(t *testing.T) {
	bubble(t, func(t *testing.T, m *lease.Manager, p *process) {
		g := acquire(t, m, "r", time.Minute)
		order := line(t, m, 1024, time.Minute)
		if _, err := m.Acquire(t.Context(), request("r", time.Minute, time.Minute)); !errors.Is(err, lease.ErrTooMany) {
			t.Errorf("got %v; want ErrTooMany", err)
		}
		_ = g
		m.Stop()
		for range 1024 {
			<-order
		}
	})
}

func TestTheLogHasALineForEachChangeAndNoSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		p := &process{d: newDisk()}
		m, err := lease.New(lease.Config{Notes: p, Marks: p, Logger: slog.New(slog.NewTextHandler(&text, nil))})
		if err != nil {
			t.Fatal(err)
		}
		g, h := acquire(t, m, "r", time.Second), acquire(t, m, "s", time.Minute)
		_, _ = m.Renew("r", "guess")
		time.Sleep(time.Second)
		synctest.Wait()
		if err := m.Release("s", h.Secret); err != nil {
			t.Fatal(err)
		}
		m.Close()
		for _, want := range []string{
			`msg="lease granted" resource=r token=1 owner=o ttl=1s`, `msg="lease not renewed" resource=r`, `msg="lease expired" resource=r token=1 owner=o`,
			`msg="lease released" resource=s token=1 owner=o`,
		} {
			if strings.Count(text.String(), want) != 1 {
				t.Errorf("the log has not one line %s:\n%s", want, &text)
			}
		}
		if strings.Contains(text.String(), g.Secret) || strings.Contains(text.String(), h.Secret) || strings.Contains(text.String(), "guess") {
			t.Error("a secret is in the log")
		}
	})
}
