package dsync

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"os/user"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

// longestText is how many bytes an owner and a lane may have.
const longestText = 128

// family is what differs between the commands of the families.
type family struct{ prefix, ask string }

var (
	locks      = family{"DLOCK", "ACQUIRE"}
	semaphores = family{"DSEM", "ACQUIRE"}
	groups     = family{"DWG", "ADD"}
	works      = family{"DONCE", "BEGIN"}
)

func (f family) command(verb, key string, words ...any) []any {
	return append([]any{f.prefix + "." + verb, key}, words...)
}

// request is one wish for a hold. Its token makes it safe to send it any number of times.
type request struct {
	*claim
	token string
}

// command returns the request, with BLOCK or QUEUE if it is to wait.
func (r *request) command(waiting ...any) []any {
	words := r.family.command(r.family.ask, r.key, "TOKEN", r.token, "PX", millis(r.lease))
	return append(append(words, r.words...), waiting...)
}

// verb returns RELEASE, DONE or another command for the hold of the request.
func (r *request) verb(verb string, words ...any) []any {
	return r.family.command(verb, r.key, append([]any{r.token}, words...)...)
}

func (r *request) renewal(lease time.Duration) []any { return r.verb("RENEW", "PX", millis(lease)) }

func newToken() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic("dsync: the system has no random numbers: " + err.Error())
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	digits := hex.EncodeToString(b[:])
	return digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:]
}

// millis returns whole milliseconds, at least one: for BLOCK zero means without limit.
func millis(time time.Duration) int64 { return max(1, time.Milliseconds()) }

// defaultOwner returns user@host:pid, for the people who read INFO. A long name of a host is cut at its end.
var defaultOwner = sync.OnceValue(func() string {
	name := strconv.Itoa(os.Geteuid())
	if found, err := user.LookupId(name); err == nil {
		name = found.Username
	} else if found, err := user.Current(); err == nil && os.Geteuid() < 0 {
		name = found.Username // Windows has no number.
	}
	host, _ := os.Hostname()
	process := ":" + strconv.Itoa(os.Getpid())
	return cut(name+"@"+host, longestText-len(process)) + process
})

// cut returns as much of the beginning as fits into so many bytes, and is whole characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
