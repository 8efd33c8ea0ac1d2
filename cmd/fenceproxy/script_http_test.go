package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// send sends the request that args describe and returns the answer as text.
func send(args []string) string {
	header := http.Header{}
	for len(args) > 2 && args[0] == "-H" {
		name, value, _ := strings.Cut(args[1], ":")
		header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		args = args[2:]
	}
	if len(args) != 2 && len(args) != 3 {
		return "usage: http [-H HEADER]... METHOD URL [BODY]\n"
	}
	var body io.Reader
	if len(args) == 3 {
		body = strings.NewReader(args[2])
	}
	req, err := http.NewRequest(args[0], args[1], body)
	if err != nil {
		return err.Error() + "\n"
	}
	req.Header = header
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return "no answer: " + err.Error() + "\n"
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	var b strings.Builder
	fmt.Fprintln(&b, resp.Status)
	for _, name := range []string{"Fencing-Status", "Retry-After", "Content-Type"} {
		if v := resp.Header.Get(name); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	fmt.Fprintf(&b, "\n%s", text)
	if err != nil {
		fmt.Fprintf(&b, "\nbroke off: %v\n", err)
	}
	return b.String()
}

func cmdHTTP(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("http does not take !")
	}
	_, _ = io.WriteString(ts.Stdout(), send(args))
}

func cmdHTTPStart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: http-start NAME [-H HEADER]... METHOD URL [BODY]")
	}
	done := make(chan string, 1)
	worldOf(ts).requests[args[0]] = done
	go func() { done <- send(args[1:]) }() // ends with the proxy, which world.end kills
}

func cmdHTTPDone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: http-done NAME")
	}
	select {
	case text := <-worldOf(ts).requests[args[0]]:
		_, _ = io.WriteString(ts.Stdout(), text)
	case <-deadline():
		ts.Fatalf("the request %s is not answered", args[0])
	}
}

// cmdPasted picks the command lines out of what a command printed for people.
func cmdPasted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: pasted FILE OUT")
	}
	text := ""
	if p := worldOf(ts).processes[args[0]]; p != nil {
		text = p.stdout.String()
	} else {
		text = ts.ReadFile(args[0])
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "curl ") {
			out.WriteString(line + "\n")
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(out.String()), 0o600))
}
