package main

import "testing"

func TestNearestSuggestsWhatWasProbablyMeant(t *testing.T) {
	known := []string{"serve", "check", "explain", "marks", "health", "demo", "version", "upstream", "upstream-timeout", "dir"}
	for got, want := range map[string]string{
		"serv": "serve", "sevre": "serve", "upsteam": "upstream", "mark": "marks", "expl": "explain", "demos": "demo",
		"": "", "x": "", "xyz": "", "frobnicate": "", "d": "",
	} {
		if near := nearest(got, known); near != want {
			t.Errorf("nearest(%q) is %q; want %q", got, near, want)
		}
	}
}
