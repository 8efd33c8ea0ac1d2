package examples

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSignedTokensKeepOutsidersOut(t *testing.T) {
	t.Parallel()
	needs(t, "sh", "curl", "sed")
	const example = "signed-tokens"
	keys := t.TempDir()
	keygen := func(name string) {
		out, err := exec.CommandContext(t.Context(), program(t, "fenceproxy"), "token", "keygen", "--out", filepath.Join(keys, name)).CombinedOutput()
		if err != nil {
			t.Fatalf("keygen: %v\n%s", err, out)
		}
	}
	keygen("lock.key")
	keygen("new.key")
	r := startWith(t, example, keys, "--config", "fenceproxy.yaml")
	for _, name := range []string{"lock.key", "new.key"} { // os.CopyFS lets everybody read
		if err := os.Chmod(filepath.Join(r.dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	// play runs demo.sh and returns its lines but for the comments, without those that sign.
	var signs []string
	play := func(part string) string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", "./demo.sh", part)
		cmd.Dir = r.dir
		cmd.Env = append(os.Environ(), "PROXY="+r.proxy, "STORE="+r.store, "NO_PROXY=*", "PATH="+filepath.Dir(program(t, "fenceproxy"))+":"+os.Getenv("PATH"))
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil || errs.Len() > 0 {
			t.Fatalf("demo.sh %s: %v\n%s\n%s\nthe proxy's log:\n%s", part, err, &out, &errs, r.log)
		}
		var b strings.Builder
		for line := range strings.Lines(out.String()) {
			switch command, ok := strings.CutPrefix(line, "$ "); {
			case strings.HasPrefix(line, "# "):
			case ok && strings.Contains(command, "fenceproxy token sign"):
				signs = append(signs, strings.TrimSuffix(command, "\n"))
			default:
				b.WriteString(line)
			}
		}
		return b.String()
	}
	got := play("before")
	r.stored(t, "/rides/7/driver", "driver B")

	var signed []string
	for _, s := range transcripts(t, example) {
		switch {
		case strings.Contains(s.command, "fenceproxy token sign"):
			signed = append(signed, s.command)
		case strings.HasPrefix(s.command, "sed "): // the page's own line edits the file
			cmd := exec.CommandContext(t.Context(), "sh", "-c", s.command)
			cmd.Dir = r.dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", s.command, err, out)
			}
		case strings.HasPrefix(s.command, "fenceproxy check"):
			cmd := exec.CommandContext(t.Context(), program(t, "fenceproxy"), strings.Fields(s.command)[1:]...)
			cmd.Dir = r.dir
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != s.output {
				t.Errorf("%s: %v\n%s\nwant\n%s", s.command, err, out, s.output)
			}
		}
	}
	if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	r.log.await(t, `msg="reloaded the policies"`)
	sameTranscript(t, example, got+play("both"))
	r.stored(t, "/rides/7/driver", "driver C")
	if !slices.Equal(signs, signed) {
		t.Errorf("demo.sh signs\n%q\nand the page shows\n%q", signs, signed)
	}
	if strings.Contains(r.log.String(), "eyJ") {
		t.Errorf("the log shows a signed token:\n%s", r.log)
	}
}

// startWith is start in an example to which the files of a folder were added.
func startWith(t *testing.T, example, files string, args ...string) *rig {
	t.Helper()
	dir := t.TempDir()
	for _, from := range []string{example, files} {
		if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	return start(t, dir, args...)
}
