package examples

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// apache starts the store of webdav/httpd.conf. Its files are in root, where the folders in it are made first.
func apache(t *testing.T, folders ...string) (store kept, root string) {
	t.Helper()
	const program, module = "/usr/sbin/apache2", "/usr/lib/apache2/modules/mod_dav_fs.so"
	for _, file := range []string{program, module} {
		if _, err := os.Stat(file); err != nil {
			absent(t, file+" is not installed")
		}
	}
	dir, err := os.MkdirTemp("", "fenceproxy-store-*") // readable for the server's own user, unlike t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	root = filepath.Join(dir, "data", "files")
	for _, f := range folders {
		if err := os.MkdirAll(filepath.Join(root, f), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	opened(t, dir)
	addr := listenable(t)
	daemon(t, addr, nil, program, "-d", dir, "-C", "Define listen "+addr, "-f", absolute(t, "webdav/httpd.conf"), "-DFOREGROUND")
	return kept{url: "http://" + addr, read: inFiles(root)}, root
}

// opened lets everybody write to what is in dir: started by root the server is somebody else.
func opened(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := os.FileMode(0o666)
		if d.IsDir() {
			mode = 0o777
		}
		return os.Chmod(path, mode)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// playsAsShown runs demo.sh of a copy of an example, and compares what it prints with all that the README shows, but for fenceproxy check.
func playsAsShown(t *testing.T, example string, r *rig, env ...string) {
	t.Helper()
	needs(t, "bash", "curl")
	files, err := os.ReadDir(example)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !f.Type().IsRegular() { // node_modules
			continue
		}
		text, err := os.ReadFile(filepath.Join(example, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.dir, f.Name()), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "./demo.sh")
	cmd.Dir = r.dir
	cmd.Env = clean("PROXY="+r.proxy, "STORE="+r.store, "ADMIN="+r.admin, "PATH="+programs.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || errs.Len() > 0 {
		t.Fatalf("demo.sh: %v\n%s\n%s\nthe proxy's log:\n%s", err, &out, &errs, r.log)
	}
	var got, want strings.Builder
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "# ") {
			got.WriteString(line)
		}
	}
	for _, s := range transcripts(t, example) {
		if !strings.HasPrefix(s.command, "fenceproxy check ") {
			want.WriteString("$ " + s.command + "\n" + s.output)
		}
	}
	if got.String() != want.String() {
		t.Errorf("demo.sh printed\n%s\nand %s/README.md shows\n%s", &got, example, &want)
	}
}

func TestWebdavRefusesTheStaleWriter(t *testing.T) {
	t.Parallel()
	needs(t, "cadaver")
	store, root := apache(t, "dav")
	r := before(t, "webdav/fenceproxy.yaml", store.url)
	playsAsShown(t, "webdav", r, "HOP33="+hop(t, "33", r.proxy), "HOP34="+hop(t, "34", r.proxy), "HOME="+t.TempDir())
	left, err := os.ReadDir(filepath.Join(root, "dav"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		if !strings.HasPrefix(f.Name(), ".") {
			t.Errorf("the store still has dav/%s; want the tree gone", f.Name())
		}
	}
	// Both spellings of the late write, and nothing of it by another name.
	if got, want := r.outcomes(t, "dav/rides/7"), []string{"admitted 33", "admitted 34", "stale 33", "stale 33", "admitted 35"}; !slices.Equal(got, want) {
		t.Errorf("the proxy saw %q on dav/rides/7; want %q", got, want)
	}
}
