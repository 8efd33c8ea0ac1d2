package chaos_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// manners are what the writers of a round do beside writing.
type manners struct {
	Hangup bool // hang up at any stage
	Slow   bool // trickle the body
	Pause  bool // pause between the lease and the write, so that the lease is lost
}

// writer takes leases and writes, again and again. It speaks HTTP by hand, so that it can stop at every byte.
type writer struct {
	name    string
	rng     *rand.Rand
	manners manners
	desk    interface {
		Lease(who string, resources []string) (uint64, bool)
		Begin(op) (addr string)
		End(id, outcome, stale string)
		At(point string)
	}
	stop  *atomic.Bool
	names []string // of the resources
	n     int

	conn net.Conn // kept from the last write, or nil
	addr string   // where conn goes
	in   *bufio.Reader
}

func newWriter(name string, seed uint64, n uint64, m manners, stop *atomic.Bool, names []string) *writer {
	return &writer{name: name, rng: rand.New(rand.NewPCG(seed, n)), manners: m, stop: stop, names: names}
}

// run writes until it is told to stop, and finishes what it has begun.
func (w *writer) run() {
	defer w.hangUp(false)
	for !w.stop.Load() {
		path, resources := w.target()
		token, ok := w.desk.Lease(w.name, resources)
		if !ok {
			w.sleep(20)
			continue
		}
	lease:
		for range 1 + w.rng.IntN(4) { // a holder writes several times
			if w.manners.Pause && w.rng.IntN(6) == 0 {
				w.sleep(400) // it does not notice that its lease is lost
			}
			switch w.write(path, resources, token) {
			case isStale:
				break lease
			case isCut:
				w.sleep(60) // the proxy may be down
			}
			w.sleep(15)
		}
	}
}

func (w *writer) sleep(most int) {
	time.Sleep(time.Duration(w.rng.IntN(most*1000)) * time.Microsecond)
}

// target draws a path and the resources that it stands for.
func (w *writer) target() (path string, resources []string) {
	a := w.names[w.rng.IntN(len(w.names))]
	if w.rng.IntN(6) == 0 {
		if b := w.names[w.rng.IntN(len(w.names))]; b != a {
			path = "/pair/" + a + "/" + b
			return path, resourcesOf(path)
		}
	}
	path = "/one/" + a
	return path, resourcesOf(path)
}

// bodyOf returns the bytes that a write carries; the checks make them again from the id.
func bodyOf(id string, size int) []byte {
	b := make([]byte, size)
	seed := sha256.Sum256([]byte(id))
	rng := rand.NewChaCha8(seed)
	_, _ = rng.Read(b) // never fails
	return b
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

func (w *writer) size() int {
	switch n := w.rng.IntN(20); {
	case n == 0:
		return 70_000 + w.rng.IntN(30_000) // longer than what the proxy keeps in memory
	case n < 4:
		return 4_000 + w.rng.IntN(20_000)
	}
	return 2 + w.rng.IntN(400)
}

// The stages at which a client hangs up, and what else it does.
const (
	whole = iota
	inHead
	beforeBody
	halfBody
	afterRequest
	halfAnswer
	halfClose // it says that it will send nothing more, and waits for the answer
	trickle
)

func (w *writer) stage() int {
	n := w.rng.IntN(100)
	if w.manners.Hangup && n < 30 {
		return inHead + n%6
	}
	if w.manners.Slow && n >= 85 {
		return trickle
	}
	return whole
}

var stageNames = []string{"", "hung up in the head", "hung up before the body", "hung up in the body", "hung up after the request", "hung up in the answer", "half-closed", "trickled"}

// write sends one write and records what became of it.
func (w *writer) write(path string, resources []string, token uint64) (outcome string) {
	w.n++
	o := op{ID: fmt.Sprintf("%s.%d", w.name, w.n), Client: w.name, Path: path, Resources: resources, Token: token, Size: w.size()}
	stage := w.stage()
	head, body, doubtful := w.compose(&o)
	o.How = stageNames[stage] + doubtful
	addr := w.desk.Begin(o)
	outcome, stale := w.send(addr, stage, head, body)
	w.desk.End(o.ID, outcome, stale)
	return outcome
}

// compose returns the bytes of the head and of the body. Some writes carry no token or one that is none; they must be refused.
func (w *writer) compose(o *op) (head, body []byte, what string) {
	raw := bodyOf(o.ID, o.Size)
	var h strings.Builder
	fmt.Fprintf(&h, "PUT %s HTTP/1.1\r\nHost: store.test\r\nX-Write-Id: %s\r\n", o.Path, o.ID)
	switch w.rng.IntN(60) {
	case 0:
		what = ", no token"
	case 1:
		what = ", bad token"
		fmt.Fprintf(&h, "Fencing-Token: -%d\r\n", o.Token)
	default:
		fmt.Fprintf(&h, "Fencing-Token: %d\r\n", o.Token)
	}
	if w.rng.IntN(2) == 0 {
		fmt.Fprintf(&h, "Idempotency-Key: %s\r\n", o.ID) // makes Go's client repeat a request, if one lets it
	}
	if w.rng.IntN(8) == 0 {
		h.WriteString("Expect: 100-continue\r\n")
	}
	if w.rng.IntN(4) > 0 {
		fmt.Fprintf(&h, "Content-Length: %d\r\n\r\n", len(raw))
		return []byte(h.String()), raw, what
	}
	h.WriteString("Transfer-Encoding: chunked\r\n\r\n")
	half := len(raw) / 2
	body = fmt.Appendf(nil, "%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", half, raw[:half], len(raw)-half, raw[half:])
	return []byte(h.String()), body, what + ", chunked"
}

// dial connects unless a connection is kept.
func (w *writer) dial(addr string) error {
	if w.conn != nil && w.addr == addr && w.rng.IntN(4) > 0 {
		return nil
	}
	w.hangUp(false)
	conn, err := net.DialTimeout("tcp", addr, 2*time.Second)
	if err != nil {
		return err
	}
	w.conn, w.addr, w.in = conn, addr, bufio.NewReader(conn)
	return nil
}

func (w *writer) hangUp(reset bool) {
	if w.conn == nil {
		return
	}
	if reset {
		_ = w.conn.(*net.TCPConn).SetLinger(0)
	}
	w.conn.Close()
	w.conn = nil
}

// send sends a request as far as the stage says and returns what its client knows then.
func (w *writer) send(addr string, stage int, head, body []byte) (outcome, stale string) {
	if err := w.dial(addr); err != nil {
		return isCut, ""
	}
	reset := w.rng.IntN(2) == 0
	_ = w.conn.SetDeadline(time.Now().Add(8 * time.Second))
	complete := w.request(stage, head, body)
	switch stage {
	case inHead, beforeBody, halfBody:
		w.hangUp(reset)
		return isCut, ""
	case afterRequest:
		if w.rng.IntN(2) == 0 {
			w.sleep(40)
		}
		w.hangUp(reset)
		return unanswered(complete), ""
	case halfAnswer:
		_, _ = w.in.Read(make([]byte, 20))
		w.hangUp(reset)
		return unanswered(complete), ""
	case halfClose:
		_ = w.conn.(*net.TCPConn).CloseWrite()
		defer w.hangUp(false)
	}
	outcome, stale, keep := readAnswer(w.in)
	if !keep || !complete {
		w.hangUp(false)
	}
	if outcome == isUnknown {
		outcome = unanswered(complete)
	}
	if outcome == isOK && !complete {
		outcome = "ok for half a body"
	}
	return outcome, stale
}

func unanswered(complete bool) string {
	if complete {
		return isUnknown
	}
	return isCut
}

// request writes the request as far as the stage says, and reports whether all of it was sent.
func (w *writer) request(stage int, head, body []byte) (complete bool) {
	send := func(b []byte) bool {
		_, err := w.conn.Write(b)
		return err == nil
	}
	expects := strings.Contains(string(head), "100-continue")
	switch {
	case stage == inHead:
		send(head[:w.rng.IntN(len(head))])
		return false
	case !send(head) || stage == beforeBody:
		return false
	}
	if expects && !w.mayContinue() {
		return false
	}
	switch stage {
	case halfBody:
		send(body[:1+w.rng.IntN(len(body)-1)])
		w.desk.At("half-body")
		w.sleep(10)
		return false
	case trickle:
		for i := range 5 {
			if !send(body[i*len(body)/5 : (i+1)*len(body)/5]) {
				return false
			}
			if i == 2 {
				w.desk.At("half-body")
			}
			w.sleep(30)
		}
		return true
	}
	return send(body)
}

// mayContinue waits for the interim answer, and reports false if the final one comes instead.
func (w *writer) mayContinue() bool {
	line, err := w.in.Peek(12)
	if err != nil || string(line) != "HTTP/1.1 100" {
		return false
	}
	for {
		line, err := w.in.ReadString('\n')
		if err != nil || strings.TrimSpace(line) == "" {
			return err == nil
		}
	}
}

// readAnswer reads an answer to its end. An answer that breaks off counts only if its head says that nothing was forwarded.
func readAnswer(in *bufio.Reader) (outcome, stale string, keep bool) {
	resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodPut})
	if err != nil {
		return isUnknown, "", false
	}
	body, err := io.ReadAll(resp.Body)
	keep = err == nil && !resp.Close
	var problem struct{ Resource, Forwarded string }
	_ = json.Unmarshal(body, &problem) // the store's own answers are none
	switch status := resp.Header.Get("Fencing-Status"); status {
	case "admitted":
		switch {
		case problem.Forwarded == "no":
			return isRefused, "", keep
		case resp.StatusCode/100 == 2 && err == nil:
			return isOK, "", keep
		case resp.StatusCode == http.StatusInternalServerError && err == nil:
			return isFailed, "", keep
		}
	case "stale":
		return isStale, problem.Resource, keep
	case "", "in-doubt":
	default:
		return isRefused, "", keep
	}
	return isUnknown, "", keep
}

// clientMain runs writers in a process of their own until its standard input ends. Arguments: URL of the desk, seed, manners, resources.
func clientMain(args []string) int {
	seed, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		return 2
	}
	var m manners
	if err := json.Unmarshal([]byte(args[2]), &m); err != nil {
		return 2
	}
	var stop atomic.Bool
	var writers sync.WaitGroup
	for i := range 3 {
		w := newWriter(fmt.Sprintf("p%d", i), seed, 100+uint64(i), m, &stop, strings.Split(args[3], ","))
		w.desk = remoteDesk{args[0]}
		writers.Go(w.run)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop.Store(true)
	writers.Wait()
	return 0
}
