package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// wrongPath begins the paths of the experiments. The store notes when their writes arrive.
const wrongPath = "/wrong/"

// verdict is the outcome of an experiment: whether the store holds the stale write although the newer one was acknowledged.
type verdict struct {
	Experiment string `json:"experiment"`
	Peer       string `json:"peer"`
	Landed     bool   `json:"stale_write_landed_last"`
	Stale      int    `json:"stale_status"` // what the sender of the stale write was told; 0: it got no answer
	Newer      int    `json:"newer_status"`
	Failed     string `json:"failed,omitempty"` // the experiment did not come to an end
}

// experiment sends a newer and a stale write to one resource.
type experiment struct {
	name string
	what string
	// disruptive experiments kill the peer or fill it up, so they run on an instance of their own, and on fences only.
	disruptive bool
	small      bool // on an instance with room for few marks
	run        func(context.Context, *attempt) verdict
}

func allExperiments() []*experiment {
	return []*experiment{
		{name: "paused client", what: "33 sends its head and half of its body, and pauses; 34 writes and is acknowledged; 33 sends the rest", run: pausedClient},
		{name: "slow store", what: "33 is admitted, and the store takes its time; 34 writes and is acknowledged; then 33 is applied", run: slowStore},
		{name: "above 2^53", what: "9007199254740993, then 9007199254740992; an etcd lease id, then the one below it",
			run: pairs([2]uint64{9007199254740993, 9007199254740992}, [2]uint64{7587862094211325954, 7587862094211325953})},
		{name: "zxid", what: "0x500000001, then 0x4ffffffff, which is higher if one looks at 32 bits", run: pairs([2]uint64{0x500000001, 0x4ffffffff})},
		{name: "kill -9", what: "34 is acknowledged; every process of the fence is killed and started again; then 33", disruptive: true, run: crashed},
		{name: "marks evicted", small: true, what: "34 is acknowledged; then 20,000 other resources, with room for fewer marks where a fence can be given too little (maxmemory 4mb with allkeys-lru; 1,024 entries); then 33", disruptive: true, run: evicted},
	}
}

// attempt is one experiment on one instance.
type attempt struct {
	i    *instance
	path string
	http *http.Client
}

var attempts atomic.Int64

func (i *instance) attempt() *attempt {
	// A connection for each request: a kept one may lead to a process that an experiment has killed.
	return &attempt{i: i, path: fmt.Sprintf("%s%d", wrongPath, attempts.Add(1)),
		http: &http.Client{Timeout: 40 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// put writes a body that begins with its token. It is 0 without an answer.
func (a *attempt) put(ctx context.Context, path string, token uint64, size int, header ...string) int {
	body := []byte(fmt.Sprintf("%d ", token))
	body = append(body, bytes.Repeat([]byte{'x'}, max(0, size-len(body)))...)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+a.i.address+path, bytes.NewReader(body))
	if err != nil {
		return 0
	}
	req.Header.Set("Fencing-Token", strconv.FormatUint(token, 10))
	for n := 0; n+1 < len(header); n += 2 {
		req.Header.Set(header[n], header[n+1])
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// fromStore asks the store itself, not through the peer.
func (a *attempt) fromStore(ctx context.Context, path string) (int, string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.i.lab.upstream+path, nil)
	if err != nil {
		return 0, ""
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64))
	token, _, _ := strings.Cut(string(b), " ")
	return resp.StatusCode, token
}

// judge says which write the store holds in the end.
func (a *attempt) judge(ctx context.Context, path string, stale, newer int, staleToken uint64) verdict {
	v := verdict{Stale: stale, Newer: newer}
	_, token := a.fromStore(ctx, path)
	switch {
	case newer < 200 || newer > 299:
		v.Failed = fmt.Sprintf("the newer write was answered with %d", newer)
	case token == "":
		v.Failed = "the store does not hold the object"
	default:
		v.Landed = token == strconv.FormatUint(staleToken, 10)
	}
	return v
}

// arrived waits until the store has got a write, or until it is clear that the peer keeps it back.
func (a *attempt) arrived(ctx context.Context) {
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if status, _ := a.fromStore(ctx, arrivedPath+a.path); status == http.StatusOK {
			return
		}
	}
}

func pausedClient(ctx context.Context, a *attempt) verdict {
	const size = 200_000
	conn, err := net.DialTimeout("tcp", a.i.address, 5*time.Second)
	if err != nil {
		return verdict{Failed: err.Error()}
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(40 * time.Second))
	body := append([]byte("33 "), bytes.Repeat([]byte{'x'}, size-3)...)
	fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: store\r\nContent-Length: %d\r\nFencing-Token: 33\r\n\r\n", a.path, size)
	if _, err := conn.Write(body[:size/2]); err != nil {
		return verdict{Failed: err.Error()}
	}
	a.arrived(ctx)
	// A fence that waits for 33 lets 34 wait until the pause is over.
	newer := make(chan int, 1)
	go func() { newer <- a.put(ctx, a.path, 34, kilobyte) }()
	status := 0
	select {
	case status = <-newer:
		newer <- status
	case <-time.After(time.Second):
	}
	stale := 0
	if _, err := conn.Write(body[size/2:]); err == nil {
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
			stale = resp.StatusCode
			resp.Body.Close()
		}
	}
	return a.judge(ctx, a.path, stale, <-newer, 33)
}

func slowStore(ctx context.Context, a *attempt) verdict {
	stale := make(chan int, 1)
	go func() { stale <- a.put(ctx, a.path, 33, kilobyte, delayHeader, "1200") }()
	a.arrived(ctx)
	newer := a.put(ctx, a.path, 34, kilobyte)
	return a.judge(ctx, a.path, <-stale, newer, 33)
}

// pairs writes the first token of each pair and then the second, lower one.
func pairs(tokens ...[2]uint64) func(context.Context, *attempt) verdict {
	return func(ctx context.Context, a *attempt) verdict {
		var v verdict
		for n, pair := range tokens {
			path := fmt.Sprintf("%s-%d", a.path, n)
			newer := a.put(ctx, path, pair[0], kilobyte)
			stale := a.put(ctx, path, pair[1], kilobyte)
			if v = a.judge(ctx, path, stale, newer, pair[1]); v.Landed || v.Failed != "" {
				break
			}
		}
		return v
	}
}
