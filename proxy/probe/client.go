package probe

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// maxRequests bounds what one probe sends, its cleaning up apart.
const maxRequests = 600

// maxAnswer is how many bytes of an answer are looked at.
const maxAnswer = 256 << 10

// field is a header line.
type field struct{ name, value string }

// request is sent as it is: the target byte for byte.
type request struct {
	method, target string
	host           string // empty for the host of the URL
	header         []field
	body           []byte
}

// reply is an answer; its body is read to the end, or to maxAnswer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r reply) ok() bool { return r.status/100 == 2 }

// client sends requests, each on a new connection: what one of them does to its connection cannot touch the next.
type client struct {
	network, address string
	tls              *tls.Config // nil for plain HTTP
	host             string
	timeout          time.Duration
	extra            []field
	signer           *signer // nil for unsigned requests
	left             int     // requests that may still be sent
}

// do sends r and reads the answer.
func (c *client) do(ctx context.Context, r request) (reply, error) {
	got, err := c.send(ctx, r, signEncoded)
	if err == nil && got.status == http.StatusForbidden && c.signer != nil && canonicalURI(r.target, signEncoded) != canonicalURI(r.target, signRaw) {
		// Stores differ in which form of the path a signature is over.
		if again, err := c.send(ctx, r, signRaw); err == nil && again.status != http.StatusForbidden {
			return again, nil
		}
	}
	return got, err
}

func (c *client) send(ctx context.Context, r request, form signForm) (reply, error) {
	conn, stop, err := c.connect(ctx)
	if err != nil {
		return reply{}, err
	}
	defer stop()
	head := c.head(r, int64(len(r.body)), form)
	_, werr := conn.Write(append(head, r.body...))
	got, err := readReply(conn, r.method)
	if err != nil && werr != nil {
		err = werr // the answer, if there is one, says more than a write that broke off
	}
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return got, err
}

// cut announces a body of length bytes, sends a part of it and ends the connection, in order or with a reset. It returns the answer, if the
// store gave one in time.
func (c *client) cut(ctx context.Context, r request, length int64, reset bool) (reply, error) {
	conn, stop, err := c.connect(ctx)
	if err != nil {
		return reply{}, err
	}
	defer stop()
	if _, err := conn.Write(append(c.head(r, length, signEncoded), r.body...)); err != nil {
		return reply{}, err
	}
	tcp, isTCP := plain(conn).(*net.TCPConn)
	if reset {
		if !isTCP {
			return reply{}, errNoReset
		}
		// The store must have taken the bytes in before the reset drops what is still in the buffers.
		time.Sleep(cutPause)
		if err := tcp.SetLinger(0); err != nil {
			return reply{}, err
		}
		return reply{}, tcp.Close()
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		if err := half.CloseWrite(); err != nil {
			return reply{}, err
		}
	}
	if isTCP && plain(conn) != conn {
		if err := tcp.CloseWrite(); err != nil {
			return reply{}, err
		}
	}
	if err := conn.SetReadDeadline(time.Now().Add(min(c.timeout, cutWait))); err != nil {
		return reply{}, err
	}
	got, err := readReply(conn, r.method)
	if err != nil {
		return reply{}, nil // no answer is what is to be expected
	}
	return got, nil
}

const (
	cutPause = 200 * time.Millisecond // between the last byte and a reset
	cutWait  = 2 * time.Second        // for an answer to an upload that broke off
)

var errNoReset = fmt.Errorf("a reset needs TCP")

// plain is the connection below TLS.
func plain(conn net.Conn) net.Conn {
	if t, ok := conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return conn
}

// connect returns a connection that ends with stop, with the timeout and with the context.
func (c *client) connect(ctx context.Context) (net.Conn, func(), error) {
	if c.left--; c.left < 0 {
		return nil, nil, ErrTooMany
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	dialing, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(dialing, c.network, c.address)
	if err != nil {
		return nil, nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		conn.Close()
		return nil, nil, err
	}
	if c.tls != nil {
		t := tls.Client(conn, c.tls)
		if err := t.HandshakeContext(dialing); err != nil {
			conn.Close()
			return nil, nil, err
		}
		conn = t
	}
	unwatch := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // a closed connection is ended already
	return conn, func() { unwatch(); conn.Close() }, nil
}

func (c *client) head(r request, length int64, form signForm) []byte {
	host := r.host
	if host == "" {
		host = c.host
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: fenceproxy-probe\r\nAccept: */*\r\nConnection: close\r\n", r.method, r.target, host)
	if length > 0 || r.method == http.MethodPut || r.method == http.MethodPost {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", length)
	}
	header := append(append([]field(nil), c.extra...), r.header...)
	if c.signer != nil {
		header = append(header, c.signer.sign(r.method, r.target, host, r.header, time.Now(), form)...)
	}
	for _, f := range header {
		fmt.Fprintf(&b, "%s: %s\r\n", f.name, f.value)
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

func readReply(conn net.Conn, method string) (reply, error) {
	rd := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(rd, &http.Request{Method: method})
		if err != nil {
			return reply{}, err
		}
		if resp.StatusCode/100 == 1 && resp.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if err != nil && resp.StatusCode/100 == 2 {
			return reply{}, err
		}
		return reply{resp.StatusCode, resp.Header, body}, nil
	}
}
