package dsync

import (
	"context"
	"sync"
	"time"
)

// shortestAnswer is how long the answer to a renewal is waited for at least, however short the lease is.
const shortestAnswer = 200 * time.Millisecond

// lineKey tells which holds are renewed together: those of one server that need the same confirmation. So nobody waits
// for the WAIT of others.
type lineKey struct {
	route   string
	confirm confirmation
}

// renewal is one that is due. Heard is told how it ended, if that is not nil.
type renewal struct {
	*grip
	heard chan error
}

// line renews holds over one connection at a time: all that are due in one pipeline.
type line struct {
	confirm confirmation

	mu     sync.Mutex
	due    []renewal
	isBusy bool
}

// renew has the hold renewed, on the connection of all renewals: so no other one can overtake it.
func (g *grip) renew(heard chan error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	route, err := g.request.client.route(ctx, g.Key())
	due := renewal{g, heard}
	if err != nil {
		due.answered(0, terms{}, nil, err)
		return
	}
	g.request.client.line(lineKey{route, g.request.confirm}).add(due)
}

func (c *Client) line(key lineKey) *line {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.lines[key]
	if found == nil {
		found = &line{confirm: key.confirm}
		c.lines[key] = found
	}
	return found
}

func (l *line) add(due renewal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = append(l.due, due)
	if l.isBusy {
		// A connection that does not answer delays the others no longer than that.
		time.AfterFunc(shortestAnswer, l.overtake)
		return
	}
	l.isBusy = true
	go l.run()
}

// take returns the renewals that are due.
func (l *line) take() []renewal {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := l.due
	l.due = nil
	return due
}

func (l *line) run() {
	for {
		l.renew(l.take())
		l.mu.Lock()
		if len(l.due) == 0 {
			l.isBusy = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
	}
}

// overtake renews what is still due over another connection.
func (l *line) overtake() { l.renew(l.take()) }

// renew sends the renewals in one write, and notes what is answered.
func (l *line) renew(due []renewal) {
	within, sent := answerWithin, now()
	asked := make([]terms, 0, len(due))
	commands := make([][]string, 0, len(due))
	live := due[:0]
	for _, one := range due {
		asks, err := one.lease.asks(sent)
		if err != nil {
			one.tell(err)
			continue
		}
		live, asked = append(live, one), append(asked, asks)
		commands = append(commands, one.request.renewal(asks.asked))
		within = min(within, max(shortestAnswer, asks.length/3))
	}
	if len(live) == 0 {
		return
	}
	ctx := context.Background()
	session := &session{request: live[0].request}
	defer session.close(false)
	replies, err := session.send(ctx, within, l.confirm, commands...)
	for i, one := range live {
		session.request = one.request
		reply, failure := any(nil), session.named(err)
		if i < len(replies) {
			reply = replies[i]
			if refusal, isRefusal := reply.(ReplyError); isRefusal {
				failure = session.failed(ctx, refusal)
			} else if !l.confirm.isWanted() || !needsConfirmation(reply) {
				failure = nil
			}
		}
		one.answered(sent, asked[i], reply, failure)
	}
}

// answered notes how a renewal ended that was sent at this moment with these terms.
func (r renewal) answered(sent time.Duration, asked terms, reply any, err error) {
	switch {
	case err == nil && number(reply) > 0:
		r.lease.renewed(sent, asked)
	case err == nil, tellsTheEnd(err):
		r.lease.notFound(err)
	default:
		r.lease.notRenewed(err)
	}
	r.tell(err)
}

func (r renewal) tell(err error) {
	if r.heard != nil {
		r.heard <- err
	}
}
