package seal

import "testing"

func TestKey_fitsOnlyWhatItHasSealed(t *testing.T) {
	key := New()
	made := key.Of(Stub, "s1", "model")
	for name, row := range map[string]struct {
		key     Key
		purpose Purpose
		words   []string
		want    bool
	}{
		"the same":         {key, Stub, []string{"s1", "model"}, true},
		"other words":      {key, Stub, []string{"s2", "model"}, false},
		"cut elsewhere":    {key, Stub, []string{"s1m", "odel"}, false},
		"fewer words":      {key, Stub, []string{"s1model"}, false},
		"another purpose":  {key, Store, []string{"s1", "model"}, false},
		"another key":      {New(), Stub, []string{"s1", "model"}, false},
		"no key":           {nil, Stub, []string{"s1", "model"}, false},
		"no words, no key": {nil, Stub, nil, false},
	} {
		if got := row.key.Fits(made, row.purpose, row.words...); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if key.Fits("", Stub, "s1", "model") {
		t.Error("no seal at all fits")
	}
}

func TestParse_readsWhatEncodeWroteAndNothingElse(t *testing.T) {
	key := New()
	again, err := Parse(key.Encode())
	if err != nil || again.Encode() != key.Encode() {
		t.Errorf("%v, %v", again, err)
	}
	for _, text := range []string{"", "00", "no digits at all", key.Encode() + "00"} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%q is taken for a key", text)
		}
	}
}
