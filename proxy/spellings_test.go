package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// spellingsOf returns ways to write the path /dir/name that some store takes for the same object, and some that none should. The first is
// the plain one. host is that of the request.
func spellingsOf(dir, name, host string) []string {
	plain := "/" + dir + "/" + name
	first, last := name[:1], fmt.Sprintf("%%%02x", name[len(name)-1])
	upper := strings.ToUpper(name)
	return []string{
		plain, plain + "/", plain + "//", "//" + dir + "/" + name, "/" + dir + "//" + name, "///" + dir + "///" + name,
		"/" + dir + "/./" + name, "/./" + dir + "/" + name, "/" + dir + "/x/../" + name, "/../" + dir + "/" + name, plain + "/.", plain + "/..", plain + "/../" + name,
		"/" + dir + "/%2e/" + name, "/%2E/" + dir + "/" + name, "/" + dir + "/x/%2e%2e/" + name, "/%2e%2e/" + dir + "/" + name, "/" + dir + "/x/.%2E/" + name,
		"/" + dir + "/%2E%2E/" + dir + "/" + name, "/" + dir + "/x%2f..%2f" + name, "/" + dir + "%2F.%2F" + name, plain + "/%2e%2e%2f" + name, plain + "/..%2f" + name,
		"/" + dir + "%2F" + name, "/" + dir + "%2f" + name, "/" + dir + "/%2F" + name, "%2F" + dir + "/" + name, "/%2f" + dir + "/" + name, plain + "%2F", "/" + dir + "%252F" + name, "/" + dir + "%5C" + name,
		`/` + dir + `\` + name, `\` + dir + `\` + name,
		"/" + dir + "/" + name[:len(name)-1] + last, "/" + dir + "/" + name[:len(name)-1] + strings.ToUpper(last), fmt.Sprintf("/%%%02x", dir[0]) + dir[1:] + "/" + name,
		"/" + dir + "/" + name[:len(name)-1] + "%25" + last[1:], "/" + dir + "/" + upper, "/" + strings.ToUpper(dir) + "/" + name, "/" + dir + "/" + strings.ToUpper(first) + name[1:],
		plain + "?", plain + "?x=1", plain + "?x=/../y", plain + "#y", plain + "#", plain + "%23y", plain + "%3Fx=1", plain + ";v=1", "/" + dir + ";v=1/" + name, plain + ";", "/" + dir + "/;/" + name, plain + "%3Bv=1",
		plain + ".", plain + "%20", plain + " ", plain + "\t", plain + "+", plain + "%00", plain + "%00.txt", plain + "%0a", plain + "%0D%0A", plain + "::$DATA", plain + "%C0%AE", plain + "\xc3\xa9", plain + "%", plain + "%zz",
		"/" + dir + "/%C0%AE/" + name, "/" + dir + "/%C0%AF" + name, "/%ef%bc%8f" + dir + "/" + name, "/" + dir + "/\u200b" + name,
		"http://" + host + plain, "http://" + strings.ToUpper(host) + plain, "https://" + host + plain, "http://" + host + "/" + plain, "http://" + host + "/" + dir + "/./" + name,
		"http://elsewhere.test" + plain, "http://elsewhere.test:80" + plain, "//" + host + plain, "http:" + plain, "x://" + host + plain, dir + "/" + name, "http://user@" + host + plain,
	}
}

// transmit sends a request byte by byte as given, over a connection of its own. The answer has the code 0 where there is none.
// header alternates names and values. A body, or a method that usually has one, brings a Content-Length.
func transmit(t *testing.T, addr, method, target, body string, header ...string) reply {
	t.Helper()
	return transmitWithin(t, time.Minute, addr, method, target, body, header...)
}

// transmitWithin does not wait for an answer longer than d.
func transmitWithin(t *testing.T, d time.Duration, addr, method, target, body string, header ...string) reply {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(d))
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nConnection: close\r\n", method, target)
	host := addr
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			host = header[i+1]
			continue
		}
		fmt.Fprintf(&b, "%s: %s\r\n", header[i], header[i+1])
	}
	fmt.Fprintf(&b, "Host: %s\r\n", host)
	if body != "" || method == http.MethodPut || method == http.MethodPost {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n" + body)
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return reply{body: err.Error()}
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return reply{body: err.Error()}
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		got = append(got, err.Error()...)
	}
	return reply{resp.StatusCode, resp.Header, string(got)}
}

// attempt is a request that would change an object, as one spelling of it.
type attempt struct {
	method, target, body string
	header               []string
	endless              bool // some store works on it without end
}

func (a attempt) String() string {
	s := fmt.Sprintf("%s %q", a.method, a.target)
	for i := 0; i+1 < len(a.header); i += 2 {
		switch a.header[i] {
		case "Destination", "Content-Range", "Depth", "Host", "X-Amz-Copy-Source", "X-Amz-Rename-Source", "X-HTTP-Method-Override":
			s += fmt.Sprintf(" %s: %q", a.header[i], a.header[i+1])
		}
	}
	return s
}

// addr is where the proxy listens.
func (r *rig) addr() string { return strings.TrimPrefix(r.url, "http://") }
