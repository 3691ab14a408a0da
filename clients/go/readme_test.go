package dsync_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The programs of the README are those of example_test.go, which is compiled.
func TestProgramsOfTheReadmeAreExamples(t *testing.T) {
	readme := string(must[[]byte](t)(os.ReadFile("README.md")))
	examples := string(must[[]byte](t)(os.ReadFile("example_test.go")))
	programs := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readme, -1)
	if len(programs) < 7 {
		t.Fatalf("only %d programs", len(programs))
	}
	for _, program := range programs {
		indented := "\t" + strings.ReplaceAll(strings.TrimSpace(program[1]), "\n", "\n\t")
		if !strings.Contains(examples, strings.ReplaceAll(indented, "\n\t\n", "\n\n")) {
			t.Errorf("not in example_test.go:\n%s", program[1])
		}
	}
	if words := len(strings.Fields(readme)); words > 1500 {
		t.Errorf("%d words", words)
	}
}
