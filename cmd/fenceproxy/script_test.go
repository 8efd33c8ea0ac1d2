package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fenceproxy": main})
}

// TestScripts runs the command as its users do: see testdata/script. Beside testscript's own commands a script has
//
//	exit CODE PROGRAM ARGS...    run a program that ends with this code
//	store                        start an upstream that knows nothing of tokens; its URL is $STORE
//	stored PATH VALUE            what the upstream holds under PATH
//	applied                      print the writes that took effect, in order: METHOD PATH TOKEN
//	held NAME, release NAME      wait for a write with the header "X-Hold: NAME" to reach the upstream; let it take effect
//	start NAME ARGS...           run fenceproxy ARGS in the background until it serves; $NAME, $NAME_ADMIN and $NAME_LEASES are its URLs, $NAME_ADDRESS and the like its addresses
//	launch NAME ARGS...          the same without waiting
//	await NAME PATTERN           wait until its standard error matches
//	signal NAME SIGNAL           send TERM, INT, HUP or KILL
//	stopped NAME CODE            wait until it ends; its output is then in stdout and stderr
//	http [-H H]... METHOD URL [BODY]        send a request and print the answer
//	http-start NAME ..., http-done NAME     the same in the background
//	pasted FILE OUT              write the command lines that FILE shows to OUT
//	dav [fold] [slow]            start a WebDAV store over the directory dav; its URL is $DAV
//	certificates                 write an authority, a server's and a client's certificate: ca, server and client, .pem and .key
//	needs PROGRAM                skip the script if PROGRAM is not installed; fail if FENCEPROXY_NO_SKIP=1
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			w := newWorld(e.T())
			e.Values[worldKey{}] = w
			e.Defer(w.end)
			e.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector sleeps a second at each exit
			e.Setenv("FENCEPROXY_LISTEN", "127.0.0.1:0")
			e.Setenv("FENCEPROXY_ADMIN_LISTEN", "127.0.0.1:0")
			e.Setenv("FENCEPROXY_DIR", "marks")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"store": cmdStore, "stored": cmdStored, "applied": cmdApplied, "held": cmdHeld, "release": cmdRelease,
			"start": cmdStart, "launch": cmdLaunch, "await": cmdAwait, "signal": cmdSignal, "stopped": cmdStopped,
			"http": cmdHTTP, "http-start": cmdHTTPStart, "http-done": cmdHTTPDone,
			"exit": cmdExit, "pasted": cmdPasted, "needs": cmdNeeds, "dav": cmdDAV, "certificates": cmdCertificates,
		},
	})
}

// world is what the commands of one script share.
type world struct {
	t         testscript.T
	upstream  *upstream
	processes map[string]*process
	requests  map[string]chan string
}

type worldKey struct{}

func newWorld(t testscript.T) *world {
	return &world{t: t, processes: map[string]*process{}, requests: map[string]chan string{}}
}

func worldOf(ts *testscript.TestScript) *world { return ts.Value(worldKey{}).(*world) }

func (w *world) end() {
	for _, p := range w.processes {
		p.kill()
	}
	if w.upstream != nil {
		w.upstream.close()
	}
}

func cmdExit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit CODE PROGRAM ARGS...")
	}
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("%s ended with %d; want %s", args[1], code, args[0])
	}
}

// cmdNeeds skips a script for want of a program, by name. Where everything is installed a skip is a failure.
func cmdNeeds(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: needs PROGRAM")
	}
	if _, err := exec.LookPath(args[0]); err == nil {
		return
	}
	if os.Getenv("FENCEPROXY_NO_SKIP") == "1" {
		ts.Fatalf("%s is not installed, and FENCEPROXY_NO_SKIP=1 forbids to skip", args[0])
	}
	worldOf(ts).t.Skip(args[0] + " is not installed")
}
