package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/proxy"
)

func explainCommand() *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "say which policy, resource and token a request has, and what would become of it",
		ArgsUsage: "METHOD URL",
		Description: `Without a running proxy, by the configuration alone:
  fenceproxy explain --config fenceproxy.yaml PUT /rides/7 -H 'Fencing-Token: 33'

A policy that reads the resource from the JSON body:
  fenceproxy explain --config fenceproxy.yaml POST /orders -H 'Fencing-Token: 33' --data '{"order": {"id": 7}}'

Ask a running proxy, which knows the marks too:
  fenceproxy explain --live PUT /rides/7 -H 'Fencing-Token: 33'`,
		Flags: append(append(overrideFlags(), adminFlags()...),
			&cli.StringSliceFlag{Name: "header", Aliases: []string{"H"}, Usage: "a `HEADER` of the request, as for curl; repeat it for more"},
			&cli.StringFlag{Name: "data", Aliases: []string{"d"}, Usage: "the request's `BODY`; @FILE reads it from a file"},
			&cli.BoolFlag{Name: "live", DisableDefaultText: true, Usage: "ask the running proxy at --admin"},
			jsonFlag(),
		),
		Action: explain,
	}
}

func explain(c *cli.Context) error {
	q, err := explainRequest(c)
	if err != nil {
		return err
	}
	var e *proxy.Explanation
	if c.Bool("live") {
		e, err = explainLive(c, q)
	} else {
		e, err = explainFile(c, q)
	}
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return writeJSON(c.App.Writer, e)
	}
	_, err = e.WriteTo(c.App.Writer)
	return err
}

func explainRequest(c *cli.Context) (proxy.ExplainRequest, error) {
	args, err := arguments(c)
	if err != nil {
		return proxy.ExplainRequest{}, err
	}
	if len(args) != 2 {
		return proxy.ExplainRequest{}, withHint(usagef("explain needs a METHOD and a URL, and got %s", count(len(args), "argument")), "fenceproxy explain PUT /rides/7 -H 'Fencing-Token: 33'")
	}
	q := proxy.ExplainRequest{Method: args[0], URL: args[1], Header: http.Header{}}
	for _, h := range c.StringSlice("header") {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return q, usagef("%q is not a header; write -H 'Name: value'", h)
		}
		q.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if c.IsSet("data") {
		data := c.String("data")
		if file, ok := strings.CutPrefix(data, "@"); ok {
			b, err := os.ReadFile(file)
			if err != nil {
				return q, fmt.Errorf("--data: %w", err)
			}
			data = string(b)
		}
		q.Body = []byte(data)
	}
	return q, nil
}

func explainFile(c *cli.Context, q proxy.ExplainRequest) (*proxy.Explanation, error) {
	if c.String("upstream") == "" && c.String("config") == "" {
		if err := c.Set("upstream", "http://127.0.0.1:9000"); err != nil { // the store does not matter here
			return nil, err
		}
	}
	cfg, err := loadConfig(c)
	if err != nil {
		return nil, err
	}
	e, err := proxy.Explain(cfg.Policies, q)
	if err != nil {
		return nil, &usageError{err}
	}
	return e, nil
}

func explainLive(c *cli.Context, q proxy.ExplainRequest) (*proxy.Explanation, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	remote, err := newRemote(c)
	if err != nil {
		return nil, err
	}
	e := new(proxy.Explanation)
	remote.absent = "is the proxy running? Leave --live out to ask the configuration alone"
	return e, remote.call(c.Context, http.MethodPost, "/v1/explain", bytes.NewReader(body), func(r io.Reader) error {
		return json.NewDecoder(r).Decode(e)
	})
}
