package examples

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestLeasesFenceAPausedHolder(t *testing.T) {
	t.Parallel()
	needs(t, "sh", "curl")
	t.Run("demo", func(t *testing.T) {
		r := start(t, "leases", "--config", "fenceproxy.yaml", "--leases-listen", "127.0.0.1:0")
		leases := "http://" + r.log.await(t, `fenceproxy: leases on (\S+)`)[1]
		cmd := exec.CommandContext(t.Context(), "sh", "./demo.sh")
		cmd.Dir = r.dir
		cmd.Env = append(os.Environ(), "PROXY="+r.proxy, "STORE="+r.store, "ADMIN="+r.admin, "LEASES="+leases, "NO_PROXY=*")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil || errs.Len() > 0 {
			t.Fatalf("demo.sh: %v\n%s\n%s\nthe proxy's log:\n%s", err, &out, &errs, r.log)
		}
		var b strings.Builder
		for line := range strings.Lines(out.String()) {
			if !strings.HasPrefix(line, "# ") {
				b.WriteString(line)
			}
		}
		sameTranscript(t, "leases", b.String())
		r.stored(t, "/rides/7/driver", "driver B")

		// What the page shows without its output.
		run := exec.CommandContext(t.Context(), program(t, "fenceproxy"), "lease", "run", "rides/8", "--leases", leases, "--wait", "1m", "--",
			"sh", "-c", `curl -sf -X PUT -H "Fencing-Token: $FENCING_TOKEN" -d "driver D" $PROXY/rides/8/driver`)
		run.Env = cmd.Env
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("lease run: %v\n%s", err, out)
		}
		r.stored(t, "/rides/8/driver", "driver D")
	})
}
