package main

import "testing"

func TestKeyDifferenceNamesOnlyWhatDiffers(t *testing.T) {
	const rides = "resource rides/{id}; order number; dot_segments=reject case=distinct query_identity="
	for _, test := range []struct {
		name, now, was, is string
	}{
		{"the resource", "resource ride-{id}; order number; dot_segments=reject case=distinct query_identity=", "resource rides/{id}", "resource ride-{id}"},
		{"the order", "resource rides/{id}; order pair; dot_segments=reject case=distinct query_identity=", "order number", "order pair"},
		{"options", "resource rides/{id}; order number; dot_segments=reject case=fold query_identity=v", "case=distinct; query_identity=(none)", "case=fold; query_identity=v"},
		{"an option that is new", rides + " more=yes", "(none)", "more=yes"},
		{"a text of another form", "rides", "resource rides/{id}; order number; dot_segments=reject; case=distinct; query_identity=(none)", "rides"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if was, is := keyDifference(rides, test.now); was != test.was || is != test.is {
				t.Errorf("got %q and %q; want %q and %q", was, is, test.was, test.is)
			}
		})
	}
}
