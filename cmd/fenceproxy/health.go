package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

func healthCommand() *cli.Command {
	return &cli.Command{
		Name:  "health",
		Usage: "ask a running proxy whether it takes writes: exit code 0 if it does, 1 if not",
		Description: `It asks /readyz of the admin listener and needs no shell and no curl, as a container's health check:
  HEALTHCHECK CMD ["/fenceproxy", "health"]

Only whether the process answers at all (/healthz), which is what a restart depends on:
  fenceproxy health --alive`,
		Flags: append(adminFlags(),
			&cli.BoolFlag{Name: "alive", DisableDefaultText: true, Usage: "ask /healthz: a proxy that takes no writes now is alive too"},
			&cli.DurationFlag{Name: "timeout", EnvVars: []string{"FENCEPROXY_HEALTH_TIMEOUT"}, Value: 3 * time.Second, Usage: "wait at most `DURATION` for the answer"},
		),
		Action: health,
	}
}

func health(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	r, err := newRemote(c)
	if err != nil {
		return err
	}
	r.absent = "is the proxy running, and is its admin listener at --admin?"
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	if c.Bool("alive") {
		return r.call(ctx, http.MethodGet, "/healthz", nil, func(body io.Reader) error {
			if text, err := io.ReadAll(io.LimitReader(body, 1<<10)); err != nil || string(text) != "ok\n" {
				return errors.Join(r.foreign(http.StatusOK), err)
			}
			_, err := fmt.Fprintln(c.App.Writer, "alive")
			return err
		})
	}
	return r.ready(ctx, c.App.Writer)
}

// ready says "ready", or fails with the reasons that the proxy gives.
func (r *remote) ready(ctx context.Context, w io.Writer) error {
	var state struct {
		Ready      bool     `json:"ready"`
		Reasons    []string `json:"reasons"`
		Recovering float64  `json:"recovering_seconds"`
	}
	code, text, err := r.ask(ctx, http.MethodGet, "/readyz", nil)
	if err != nil {
		return err
	}
	if json.Unmarshal(text, &state) != nil || code != http.StatusOK && len(state.Reasons) == 0 {
		return r.foreign(code)
	}
	if !state.Ready {
		return withHint(errors.New("not ready: "+strings.Join(state.Reasons, "; ")), "reads go on; see the proxy's log")
	}
	line := "ready"
	if state.Recovering > 0 {
		line += fmt.Sprintf("; new tokens wait %.1f s more, since the last run did not stop cleanly", state.Recovering)
	}
	_, err = fmt.Fprintln(w, line)
	return err
}
