package page

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(path string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	return answer
}

func TestPage_refersToNothingThatIsNotServed(t *testing.T) {
	reference := regexp.MustCompile(`(?:href|src)="([^"#]+)"`)
	for _, found := range reference.FindAllStringSubmatch(get("/session").Body.String(), -1) {
		if !strings.HasPrefix(found[1], "/session/") {
			t.Errorf("the page refers to %s, which is no file of its own", found[1])
		}
		if code := get(found[1]).Code; code != http.StatusOK {
			t.Errorf("%s answers %d", found[1], code)
		}
	}
}

func TestPage_scriptsImportOnlyFilesThatAreServed(t *testing.T) {
	imported := regexp.MustCompile(`from "\./([a-z]+\.js)"`)
	scripts, err := fs.Glob(files, "static/js/*.js")
	if err != nil || len(scripts) == 0 {
		t.Fatal("no scripts:", err)
	}
	for _, script := range scripts {
		text, err := fs.ReadFile(files, script)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range imported.FindAllStringSubmatch(string(text), -1) {
			answer := get("/session/js/" + found[1])
			if answer.Code != http.StatusOK || !strings.HasPrefix(answer.Header().Get("Content-Type"), "text/javascript") {
				t.Errorf("%s imports %s, which answers %d as %s", script, found[1], answer.Code, answer.Header().Get("Content-Type"))
			}
		}
	}
}

func TestPage_everyAnswerSaysWhatItMayLoad(t *testing.T) {
	for _, path := range []string{"/session", "/session/page.css", "/session/js/main.js", "/session/none"} {
		header := get(path).Header()
		for name, value := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"} {
			if header.Get(name) != value {
				t.Errorf("%s has %s %q", path, name, header.Get(name))
			}
		}
	}
}

func TestPage_otherAddresses(t *testing.T) {
	for path, code := range map[string]int{
		"/session/": http.StatusMovedPermanently, "/session/none": http.StatusNotFound, "/session/js/none.js": http.StatusNotFound,
		"/session/%2e%2e/page.go": http.StatusNotFound, "/session/..%2fpage.go": http.StatusNotFound,
	} {
		if got := get(path).Code; got != code {
			t.Errorf("%s answers %d, not %d", path, got, code)
		}
	}
}
