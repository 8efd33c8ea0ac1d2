package conformance_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// hop listens before target and adds a line to the head of each request. All other bytes pass as they are, in both directions.
func hop(t *testing.T, target, line string) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return // closed with the test
			}
			wg.Go(func() { relay(client, target, line) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait() // the suite has ended, and its connections with it
	})
	return ln.Addr().String()
}

// relay serves one connection until either side ends it.
func relay(client net.Conn, target, line string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	answered := make(chan struct{})
	go func() { // ends when the proxy closes its connection, which is below at the latest
		defer close(answered)
		_, _ = io.Copy(client, server)
		client.Close()
	}()
	err = addLine(server, bufio.NewReader(client), line)
	if errors.Is(err, io.EOF) {
		_ = server.(*net.TCPConn).CloseWrite() // the client has said all
		<-answered
		return
	}
	server.Close()
	<-answered
}

// addLine copies requests and adds line to the head of each. It returns io.EOF where the client ends after a whole request.
func addLine(w io.Writer, r *bufio.Reader, line string) error {
	for {
		var head bytes.Buffer
		for {
			l, err := r.ReadSlice('\n')
			head.Write(l)
			switch {
			case errors.Is(err, bufio.ErrBufferFull):
				continue
			case err != nil && head.Len() == 0:
				return err
			case err != nil:
				return io.ErrUnexpectedEOF
			}
			if len(bytes.TrimRight(l, "\r\n")) == 0 && head.Len() > 2 {
				break
			}
		}
		text := head.Bytes()
		first := bytes.IndexByte(text, '\n') + 1
		if _, err := fmt.Fprintf(w, "%s%s\r\n%s", text[:first], line, text[first:]); err != nil {
			return err
		}
		if err := copyBody(w, r, strings.ToLower(string(text))); err != nil {
			return err
		}
	}
}

// copyBody copies what follows a head, given in lower case.
func copyBody(w io.Writer, r *bufio.Reader, head string) error {
	if strings.Contains(head, "\ntransfer-encoding:") {
		for {
			l, err := r.ReadString('\n')
			if err != nil {
				return io.ErrUnexpectedEOF
			}
			if _, err := io.WriteString(w, l); err != nil {
				return err
			}
			size, _, _ := strings.Cut(strings.TrimRight(l, "\r\n"), ";")
			n, err := strconv.ParseInt(strings.TrimSpace(size), 16, 63)
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
			if _, err := io.CopyN(w, r, n+2); err != nil {
				return io.ErrUnexpectedEOF
			}
		}
		for { // trailers
			l, err := r.ReadString('\n')
			if err != nil {
				return io.ErrUnexpectedEOF
			}
			if _, err := io.WriteString(w, l); err != nil {
				return err
			}
			if strings.TrimRight(l, "\r\n") == "" {
				return nil
			}
		}
	}
	_, rest, found := strings.Cut(head, "\ncontent-length:")
	if !found {
		return nil
	}
	size, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseInt(strings.TrimSpace(size), 10, 63)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(w, r, n); err != nil {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// TestTheHopAddsALineAndNothingElse.
func TestTheHopAddsALineAndNothingElse(t *testing.T) {
	in := "PUT /a%2Fb HTTP/1.1\r\nhost: x\r\nContent-Length: 5\r\n\r\n1\n2\n3" +
		"PUT /c HTTP/1.1\r\nX-Amz-meta-A:  b\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n0\r\nT: 1\r\n\r\n" +
		"GET / HTTP/1.1\r\n\r\n"
	var out bytes.Buffer
	if err := addLine(&out, bufio.NewReader(strings.NewReader(in)), "Fencing-Token: 34"); !errors.Is(err, io.EOF) {
		t.Fatalf("addLine: %v; want io.EOF", err)
	}
	if want := strings.ReplaceAll(in, " HTTP/1.1\r\n", " HTTP/1.1\r\nFencing-Token: 34\r\n"); out.String() != want {
		t.Errorf("got %q; want %q", out.String(), want)
	}
}
