package dsync

import (
	"fmt"
	"time"
)

// kind is what a request is answered.
type kind int

const (
	refused kind = iota
	granted
	waiting
	done
	failed
	// A grant that has ended before it was known to count.
	ended
)

// answer is the reply to ACQUIRE, ADD or BEGIN.
type answer struct {
	kind    kind
	fence   int64
	attempt int
	// Index is -1 unless it was asked for.
	index int
	// Result of work that is done, reason of work that has failed.
	text string
}

func readAnswer(reply any) (answer, error) {
	items, _ := reply.([]any)
	got := answer{kind: granted, attempt: 1, index: -1}
	// The token comes first, and it can be any text: so a grant is told by its shape.
	switch {
	case reply == nil:
		return answer{kind: refused}, nil
	case len(items) == 2:
		got.fence = number(items[1])
	case len(items) == 3 && isNumber(items[1]) && isNumber(items[2]):
		got.fence, got.index = number(items[1]), int(number(items[2]))
	case len(items) == 3 && others[text(items[0])] != refused:
		got = answer{kind: others[text(items[0])], text: text(items[1]), attempt: int(number(items[2]))}
	case len(items) == 4 && text(items[0]) == "RUN":
		got.fence, got.attempt = number(items[2]), int(number(items[3]))
	default:
		return answer{}, unexpected(reply)
	}
	return got, nil
}

// others are the first words of answers that are no grants.
var others = map[string]kind{"WAITING": waiting, "DONE": done, "FAILED": failed}

// needsConfirmation returns whether the reply is a grant, or the 1 of RENEW or DONE.
func needsConfirmation(reply any) bool {
	got, err := readAnswer(reply)
	return err == nil && got.kind == granted || number(reply) > 0
}

func unexpected(reply any) error {
	return Final(fmt.Errorf("a reply that dsync does not give: %T", reply))
}

func isNumber(reply any) bool {
	_, is := reply.(int64)
	return is
}

func number(reply any) int64 {
	read, _ := reply.(int64)
	return read
}

func text(reply any) string {
	read, _ := reply.(string)
	return read
}

// firstHolders reads those of INFO.
func firstHolders(info map[string]any) []Holder {
	var holders []Holder
	rows, _ := info["first-holders"].([]any)
	for _, row := range rows {
		fields := readFields(row)
		_, rests := fields["resting-ms"]
		holders = append(holders, Holder{
			Fence:     number(fields["fence"]),
			Owner:     text(fields["owner"]),
			Held:      time.Duration(number(fields["held-ms"])) * time.Millisecond,
			LeaseLeft: time.Duration(number(fields["lease-left-ms"])) * time.Millisecond,
			Rests:     rests,
			RestLeft:  time.Duration(number(fields["resting-ms"])) * time.Millisecond,
		})
	}
	return holders
}

// readFields reads a map, which RESP2 sends as an array of names and values.
func readFields(reply any) map[string]any {
	items, _ := reply.([]any)
	fields := make(map[string]any, len(items)/2)
	for i := 0; i+1 < len(items); i += 2 {
		fields[text(items[i])] = items[i+1]
	}
	return fields
}
