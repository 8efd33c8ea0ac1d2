package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// idleFigures say what clients cost that keep a connection and do nothing.
type idleFigures struct {
	asked, open   int // fewer are open if the limit of open files is too low
	before, after memory
	stacks, heap  int64 // in use for the connections, as the Go runtime counts them
	alone, beside rate  // one writer, without and with them
}

// Writes of the one writer. A write on the way to the disk is slow enough that some hundreds tell.
const idleWrites = 500

// spareFiles are for everything but the idle connections: files of the store, connections to the upstream.
const spareFiles = 500

func (g *growth) measureIdle(ctx context.Context) (*idleFigures, error) {
	f := &idleFigures{asked: g.o.clients, open: min(g.o.clients, openFiles(g.o.clients+spareFiles)-spareFiles)}
	if f.open <= 0 {
		return nil, errors.New("the limit of open files is too low: raise ulimit -Hn")
	}
	dir, err := g.newDir("idle")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s, err := g.serve(ctx, dir)
	if err != nil {
		return nil, err
	}
	writer := func(kind string) (rate, error) {
		return g.drive(ctx, drive{address: s.address, writers: 1, count: idleWrites, path: fresh(kind)})
	}
	if f.alone, err = writer("alone"); err != nil {
		return nil, err
	}
	before, err := s.goMemory(ctx)
	if err != nil {
		return nil, err
	}
	if f.before, err = s.memory(); err != nil {
		return nil, err
	}
	conns, err := openIdle(ctx, s.address, f.open)
	defer closeAll(conns)
	if err != nil {
		return nil, err
	}
	if f.beside, err = writer("beside"); err != nil {
		return nil, err
	}
	if f.after, err = s.memory(); err != nil {
		return nil, err
	}
	after, err := s.goMemory(ctx)
	if err != nil {
		return nil, err
	}
	f.stacks, f.heap = after[0]-before[0], after[1]-before[1]
	if ended := countEnded(conns); ended > 0 {
		return nil, fmt.Errorf("%d of %d idle connections were ended meanwhile", ended, f.open)
	}
	g.say("%d idle connections: memory %d -> %d MiB, a write beside them p50 %s", f.open, f.before.own>>20, f.after.own>>20, f.beside.p50)
	closeAll(conns)
	_, err = s.stop(ctx)
	return f, err
}

// goMemory is what the Go runtime has in use for stacks and for the heap.
func (s *served) goMemory(ctx context.Context) ([2]int64, error) {
	v, err := s.metrics(ctx, "go_memstats_stack_inuse_bytes", "go_memstats_heap_inuse_bytes")
	if err != nil {
		return [2]int64{}, err
	}
	return [2]int64{int64(v[0]), int64(v[1])}, nil
}

// openIdle opens connections, has one read answered on each, as a client does before it idles, and keeps them. It returns what it has
// opened, also after an error.
func openIdle(ctx context.Context, address string, n int) ([]net.Conn, error) {
	const dialers = 32
	conns := make([]net.Conn, n)
	errs := make([]error, dialers)
	var next atomic.Int64
	var wg sync.WaitGroup
	for d := range dialers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || errs[d] != nil || ctx.Err() != nil {
					return
				}
				conns[i], errs[d] = dialIdle(ctx, address)
			}
		})
	}
	wg.Wait()
	return conns, errors.Join(append(errs, ctx.Err())...)
}

func dialIdle(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if err := askOnce(c); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// askOnce sends a read and takes its answer, which has no body.
func askOnce(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(answerWait)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("GET /idle HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")); err != nil {
		return err
	}
	buf := make([]byte, 0, 2<<10) // a bufio.Reader for each would be larger than what is measured
	for !bytes.HasSuffix(buf, []byte("\r\n\r\n")) {
		n, err := c.Read(buf[len(buf):cap(buf)])
		if err != nil {
			return err
		}
		if buf = buf[:len(buf)+n]; len(buf) == cap(buf) {
			return errors.New("the answer to a read is too long")
		}
	}
	if want := "HTTP/1.1 " + strconv.Itoa(204); !bytes.HasPrefix(buf, []byte(want)) {
		return fmt.Errorf("a read was answered with %.40q", buf)
	}
	return nil
}

// countEnded counts the connections that do not answer another read.
func countEnded(conns []net.Conn) (n int) {
	for _, c := range conns {
		if askOnce(c) != nil {
			n++
		}
	}
	return n
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}
}

// touchFigures say what is left of resources that were touched once.
type touchFigures struct {
	touched int
	memory  memory
	heap    int64 // in use, as the Go runtime counts it
	entries int   // resources that the gate still knows
}

// measureTouched writes once to each of many resources through the proxy, and looks at its memory on the way.
func (g *growth) measureTouched(ctx context.Context) ([]touchFigures, error) {
	dir, err := g.newDir("touched")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s, err := g.serve(ctx, dir)
	if err != nil {
		return nil, err
	}
	var all []touchFigures
	done := 0
	for _, percent := range []int{0, 10, 25, 50, 75, 100} {
		if n := g.o.touched*percent/100 - done; n > 0 {
			d := drive{address: s.address, writers: g.o.writers, count: n, path: fresh("touched/" + strconv.Itoa(percent))}
			if _, err := g.drive(ctx, d); err != nil {
				return nil, err
			}
			done += n
		}
		v, err := s.metrics(ctx, "fenceproxy_resources_in_use", "go_memstats_heap_inuse_bytes")
		if err != nil {
			return nil, err
		}
		m, err := s.memory()
		if err != nil {
			return nil, err
		}
		all = append(all, touchFigures{done, m, int64(v[1]), int(v[0])})
		g.say("%d resources touched: memory %d + %d MiB, %d in the gate", done, m.own>>20, m.mapped>>20, int(v[0]))
	}
	_, err = s.stop(ctx)
	return all, err
}
