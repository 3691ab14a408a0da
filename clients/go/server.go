package dsync

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"regexp"
	"slices"
	"strings"
)

// Find returns the node that has a key, as far as that is known: from memory, unless it has found none before. Packages
// goredis and redigo have one for their library.
type Find func(ctx context.Context, key string) (Node, error)

// Node is one server, or the primary that Sentinel names.
type Node struct {
	// Name is what errors call it. Requests to nodes of one name may use a connection one after the other.
	Name string
	// Connect opens a connection that nobody else uses.
	Connect func(ctx context.Context) (Conn, error)
	// LookUp, where there is one, makes known that another node may have the key, or that this one has not answered. It
	// waits for nothing.
	LookUp func()
	// Asked, where there is one, returns the node that this one has named by ASK. Its connections say ASKING before each
	// command, and it names no other.
	Asked func(address string) Node
}

// Conn is a connection to one server, which speaks RESP2. It has no time-outs: who waits too long closes it.
type Conn interface {
	// Do sends the commands, of texts and integers, in one write. It returns their replies: nil, int64, string, []any or
	// ReplyError. With an error it returns the replies that have come before it.
	Do(commands ...[]any) ([]any, error)

	// Interrupter returns what ends at once the Do that another goroutine is in, and the connection with it; nil where
	// nothing does, while it greets the server for instance.
	Interrupter() func()

	// Address is what errors call the server of this connection: the name of its node, unless that does not tell it.
	Address() string

	// Close ends the connection, and the Do that another goroutine is in.
	Close() error
}

// ReplyError is an error that a server has replied, as "READONLY You can't write against a read only replica."
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// codeOf returns the first word of an error that a server has replied, and "" for any other.
func codeOf(err error) string {
	var reply ReplyError
	errors.As(err, &reply)
	code, _, _ := strings.Cut(string(reply), " ")
	return code
}

// ask has the host and the port of an ASK that names both: a cluster may not tell its hosts.
var ask = regexp.MustCompile(`^ASK \d+ ([^?].*):(\d+)$`)

// asked returns the address that ASK names, or nothing.
func (e ReplyError) asked() string {
	if words := ask.FindStringSubmatch(string(e)); words != nil {
		return net.JoinHostPort(words[1], words[2])
	}
	return ""
}

var unknown = regexp.MustCompile(`^ERR unknown command .?(D[A-Z]+\.[A-Z]+)`)

// worded returns the refusal as people can use it. Servers repeat the beginning of the arguments of a command that they do
// not know: so that may show a part of the token.
func (e ReplyError) worded(token string) ReplyError {
	text := string(e)
	if words := unknown.FindStringSubmatch(text); words != nil {
		text = "ERR this server has not loaded the dsync module, or an old version of it: it does not know " + words[1]
	}
	if token != "" {
		text = strings.ReplaceAll(text, token, "<token>")
	}
	if strings.HasPrefix(text, "NOLIMIT ") {
		text += ": give Limit"
	}
	return ReplyError(text)
}

// The replies of a server that cannot serve now: another attempt, perhaps at another server, can succeed. True are
// those that speak of a role or a slot.
var passing = map[string]bool{
	"UNBLOCKED": true, "READONLY": true, "MOVED": true, "ASK": true, "CLUSTERDOWN": true, "MASTERDOWN": true,
	"TRYAGAIN": false, "LOADING": false, "NOREPLICAS": false, "MISCONF": false, "BUSY": false, "OOM": false,
}

// What UNBLOCKED says of a request that is over: it was withdrawn, or its token is used by another one, or it waited
// for a group that is gone.
var over = []string{"UNBLOCKED released", "UNBLOCKED superseded", "UNBLOCKED the group was removed"}

// passes returns whether another attempt can succeed after this error. Whether the caller has given up is asked before.
func passes(err error) bool {
	var reply ReplyError
	if !errors.As(err, &reply) {
		var final *finalError
		return !errors.As(err, &final) && !isUntrusted(err)
	}
	begins := func(beginning string) bool { return strings.HasPrefix(string(reply), beginning) }
	_, passes := passing[codeOf(reply)]
	return begins("ERR max number of clients") || passes && !slices.ContainsFunc(over, begins)
}

// isUntrusted returns whether the certificate of the server is not trusted, has expired or is of another name. Checks of
// the program's own have the errors of package x509 alone.
func isUntrusted(err error) bool {
	return errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(x509.UnknownAuthorityError)) ||
		errors.As(err, new(x509.CertificateInvalidError)) || errors.As(err, new(x509.HostnameError))
}

// isNoAnswer returns whether what renews or ends a hold is asked again after this error: it passes, or the server has
// refused the connection before it looked at the command. A password may be half-way through its rotation.
func isNoAnswer(err error) bool { return passes(err) || isUnsent(err) }

func isUnsent(err error) bool {
	var unsent *unsentError
	code := codeOf(err)
	return errors.As(err, &unsent) || code == "WRONGPASS" || code == "NOAUTH"
}

// tellsTheEnd returns whether this answer to RENEW, RELEASE, DONE or FAIL says that the hold is over: the key has a
// value of another type.
func tellsTheEnd(err error) bool { return codeOf(err) == "WRONGTYPE" }

// finalError is an error without a reply that no repetition mends.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

// unsentError is an error before a command was sent.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// Unsent marks an error of [Conn.Do] that came before the commands were sent: the greeting was refused, for instance. It is
// no answer to them.
func Unsent(err error) error { return &unsentError{err} }

// Final marks an error of [Find], [Node.Connect] or [Conn.Do] as one that no repetition mends. A certificate that is not
// trusted is one, and a [ReplyError] says itself whether it passes.
func Final(err error) error { return &finalError{err} }
