package proxy_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRandomAbortsLeaveNothing has clients and upstream break off at random stages. The rig sees to it that the gate and the spool are
// empty in the end.
func TestRandomAbortsLeaveNothing(t *testing.T) {
	duration := 3 * time.Second
	if testing.Short() {
		duration = 300 * time.Millisecond
	}
	url := wire(t, badUpstream)
	r := newRig(t, url, `
upstream: {timeout: 50ms}
spool: {memory: 1KiB}
policies:
  - {name: streams, match: {path: "/stream/{id}"}, resource: "{id}", request_body: stream, in_doubt_hold: 5ms, drain_timeout: 50ms}
  - {name: serial, match: {path: "/serial/{id}"}, resource: "{id}", same_token: serial, in_doubt_hold: 5ms, drain_timeout: 50ms, settle: 1ms}
  - {name: watched, match: {path: "/watch/{id}"}, resource: "{id}", mode: observe, in_doubt_hold: 5ms}
  - {name: plain, match: {path: "/{x}/{id}"}, resource: ["{id}", "{x}"], in_doubt_hold: 5ms, drain_timeout: 50ms}
`)
	goroutines := runtime.NumGoroutine()
	var ops atomic.Int64
	var wg sync.WaitGroup
	deadline := time.Now().Add(duration)
	for range 16 {
		wg.Go(func() {
			for token := 1; time.Now().Before(deadline); token++ {
				badClient(r, token)
				ops.Add(1)
			}
		})
	}
	wg.Wait()
	eventually(t, "nothing is in flight or in doubt", func() bool {
		s := r.gate.Stats()
		return s.InFlight == 0 && s.InDoubt == 0 && s.Waiting == 0 && s.Resources == 0
	})
	eventually(t, "the goroutines are gone", func() bool { return runtime.NumGoroutine() <= goroutines+8 }) // kept connections have some
	if strings.Contains(r.logs.String(), "panic while") {
		t.Errorf("a panic was logged")
	}
	t.Logf("%d requests", ops.Load())
	outcomes := map[string]int{}
	for _, d := range r.proxy.Decisions().Last() {
		outcomes[d.Outcome]++
	}
	t.Logf("the last outcomes: %v", outcomes)
}

// badUpstream breaks off at a random stage.
func badUpstream(c *wireConn, _ int) {
	for {
		if rand.IntN(10) == 0 { // an answer before the body was read
			_, _ = c.head()
			c.say("HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			return
		}
		if _, err := c.request(); err != nil {
			return
		}
		switch rand.IntN(12) {
		case 0:
			c.reset()
			return
		case 1:
			return
		case 2:
			c.say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
			c.reset()
			return
		case 3:
			c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
			return
		case 4:
			c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
			_ = c.readError() // until the proxy has had enough
			return
		case 5:
			_ = c.readError()
			return
		case 6:
			c.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
		case 7:
			c.say("HTTP/1.1 101 Switching Protocols\r\n\r\n")
			return
		case 8:
			c.say("HTTP/1.1 000 x\r\n\r\n")
			return
		case 9:
			c.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", 300_000, strings.Repeat("x", 300_000)))
		default:
			c.say(okAnswer)
		}
	}
}

// badClient sends one request and breaks off at a random stage, or not.
func badClient(r *rig, token int) {
	c := r.dial()
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(200 * time.Millisecond)) // the answer to a read may stall for as long as it likes
	path := []string{"/stream/", "/serial/", "/watch/", "/plain/"}[rand.IntN(4)] + fmt.Sprint(rand.IntN(3))
	method := []string{"PUT", "POST", "DELETE", "GET"}[rand.IntN(4)]
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nFencing-Token: %d\r\n", method, path, 1+token/2+rand.IntN(3))
	body := strings.Repeat("x", rand.IntN(5000))
	if rand.IntN(2) == 0 {
		head += fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body))
	} else {
		head += "Transfer-Encoding: chunked\r\n\r\n"
		body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body)+1, body+"x")
	}
	all := head + body
	switch rand.IntN(6) {
	case 0:
		c.say(all[:rand.IntN(len(all))])
	case 1:
		c.say(all)
	case 2:
		c.say(all)
		_, _ = c.head()
	case 3:
		c.say(head)
		_, _ = c.Write([]byte(body)[:len(body)/2])
	default:
		c.say(all)
		_, _ = c.answer(method)
		return
	}
	if rand.IntN(2) == 0 {
		c.reset()
	}
}
