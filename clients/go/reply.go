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
	items, isArray := reply.([]any)
	if reply == nil {
		return answer{kind: refused}, nil
	}
	grant := answer{kind: granted, attempt: 1, index: -1}
	// The token comes first, and it can be any text: so a grant is told by its shape.
	switch len(items) {
	case 2:
		grant.fence = number(items[1])
		return grant, nil
	case 3:
		second, isFence := items[1].(int64)
		if third, isIndex := items[2].(int64); isFence && isIndex {
			grant.fence, grant.index = second, int(third)
			return grant, nil
		}
		switch text(items[0]) {
		case "WAITING":
			return answer{kind: waiting}, nil
		case "DONE":
			return answer{kind: done, text: text(items[1]), attempt: int(number(items[2]))}, nil
		case "FAILED":
			return answer{kind: failed, text: text(items[1]), attempt: int(number(items[2]))}, nil
		}
	case 4:
		if isArray && text(items[0]) == "RUN" {
			grant.fence, grant.attempt = number(items[2]), int(number(items[3]))
			return grant, nil
		}
	}
	return answer{}, unexpected(reply)
}

// needsConfirmation returns whether the reply is a grant, or the 1 of RENEW or DONE.
func needsConfirmation(reply any) bool {
	if _, isArray := reply.([]any); isArray {
		read, err := readAnswer(reply)
		return err == nil && read.kind == granted
	}
	return number(reply) > 0
}

func unexpected(reply any) error {
	return Final(fmt.Errorf("a reply that dsync does not give: %T", reply))
}

func number(reply any) int64 {
	read, _ := reply.(int64)
	return read
}

func text(reply any) string {
	read, _ := reply.(string)
	return read
}

// keyInfo is a part of INFO.
type keyInfo struct {
	state        string
	holders      int
	available    int
	firstHolders []Holder
}

func readInfo(reply any) keyInfo {
	fields := readFields(reply)
	info := keyInfo{
		state:     text(fields["state"]),
		holders:   int(number(fields["holders"])),
		available: int(number(fields["available"])),
	}
	rows, _ := fields["first-holders"].([]any)
	for _, row := range rows {
		fields := readFields(row)
		_, rests := fields["resting-ms"]
		info.firstHolders = append(info.firstHolders, Holder{
			Fence:     number(fields["fence"]),
			Owner:     text(fields["owner"]),
			Held:      time.Duration(number(fields["held-ms"])) * time.Millisecond,
			LeaseLeft: time.Duration(number(fields["lease-left-ms"])) * time.Millisecond,
			Rests:     rests,
			RestLeft:  time.Duration(number(fields["resting-ms"])) * time.Millisecond,
		})
	}
	return info
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
