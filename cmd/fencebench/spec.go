package main

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// firstToken is below every token of a raise. All of them have ten digits, so that one can be written over another in place, and fit
// into the 32 bits of a stick table, so that what is measured there is a fence.
const firstToken = 1_000_000_000

// loadSpec tells the load generator what to do.
type loadSpec struct {
	Address   string  `json:"address"`
	Conns     int     `json:"conns"`
	Seconds   float64 `json:"seconds,omitempty"`
	Count     int     `json:"count,omitempty"` // stop after so many requests instead
	Method    string  `json:"method"`
	Path      string  `json:"path"`      // the number of the resource is added
	Resources int     `json:"resources"` // 0: Path is the resource
	Token     int     `json:"token,omitempty"`
	Raise     bool    `json:"raise,omitempty"` // each request has the next token, from Token on
	Size      int     `json:"size"`            // of the body
	Expect    bool    `json:"expect,omitempty"`
	Rate      float64 `json:"rate,omitempty"` // requests a second, sent whatever the answers do; 0: the next after the answer
}

// loadResult is what the load generator saw.
type loadResult struct {
	Requests   int            `json:"requests"` // answered
	Seconds    float64        `json:"seconds"`  // from the first request to the last answer
	P50        float64        `json:"p50_us"`
	P99        float64        `json:"p99_us"`
	Statuses   map[string]int `json:"statuses"`
	Errors     int            `json:"errors"`
	FirstError string         `json:"first_error,omitempty"`
	Reconnects int            `json:"reconnects"`
	Continues  int            `json:"continues"`  // 100 Continue answers
	BodyBytes  int64          `json:"body_bytes"` // of bodies, written to the connection
	Closed     int            `json:"closed"`     // connections that the server ended after it had refused a body
	LastToken  int            `json:"last_token,omitempty"`
}

// requests are the requests of a spec, built before the clock starts.
type requests struct {
	spec loadSpec
	head [][]byte // by resource, with the body behind it unless it is long
	at   []int    // by resource, where the digits of the token begin in head
	body []byte   // one piece of a long body
}

const longBody = 64 << 10 // from here on a body is written in pieces, and not built into each request

func buildRequests(s loadSpec) *requests {
	r := &requests{spec: s}
	for i := range max(s.Resources, 1) {
		var b bytes.Buffer
		path := s.Path
		if s.Resources > 0 {
			path += strconv.Itoa(i)
		}
		fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n", s.Method, path)
		at := -1
		if s.Token != 0 {
			b.WriteString("Fencing-Token: ")
			at = b.Len()
			fmt.Fprintf(&b, "%d\r\n", s.Token)
		}
		if s.Method != "GET" {
			fmt.Fprintf(&b, "Content-Length: %d\r\n", s.Size)
		}
		if s.Expect {
			b.WriteString("Expect: 100-continue\r\n")
		}
		b.WriteString("\r\n")
		if !s.Expect && s.Size < longBody {
			b.Write(bytes.Repeat([]byte{'x'}, s.Size))
		}
		r.head, r.at = append(r.head, b.Bytes()), append(r.at, at)
	}
	if s.Expect || s.Size >= longBody {
		r.body = bytes.Repeat([]byte{'x'}, min(max(s.Size, 1), 256<<10))
	}
	return r
}

// get is the n-th request of all connections. scratch belongs to the connection.
func (r *requests) get(n int, scratch *[]byte) []byte {
	i := n % len(r.head)
	if !r.spec.Raise {
		return r.head[i]
	}
	*scratch = append((*scratch)[:0], r.head[i]...)
	strconv.AppendInt((*scratch)[:r.at[i]], int64(r.spec.Token+n+1), 10)
	return *scratch
}

func (s loadSpec) duration() time.Duration { return time.Duration(s.Seconds * float64(time.Second)) }
