package dsync

import (
	"context"
	"fmt"
)

// Group is a wait group of many machines: members are added and are done, and others wait for all of them.
type Group struct{ claim claim }

// NewGroup makes a group. A [Limit] makes it a gate: a member waits until fewer than so many live. Nothing is sent; a
// wrong option is the error of the first request.
func NewGroup(client *Client, key string, options ...GroupOption) *Group {
	return &Group{newClaim(client, groups, key, options, GroupOption.forGroup)}
}

// Expect declares how many jobs the round has, and returns how many of them are still owed. Do it before anybody waits.
func (g *Group) Expect(ctx context.Context, jobs int) (owed int, err error) {
	if jobs < 1 || jobs > mostCount {
		return 0, fmt.Errorf("dsync: the jobs are 1 to %d, not %d", mostCount, jobs)
	}
	reply, err := g.claim.repeat(ctx, groups.command("EXPECT", g.claim.key, jobs), answerWithin)
	return int(number(reply)), err
}

// Member is a membership of a group. One that is neither done nor released when its lease ends counts as lapsed.
type Member struct{ *Hold }

// Add adds a member. Its errors are those of [Lock.Acquire].
func (g *Group) Add(ctx context.Context) (*Member, error) {
	hold, err := g.claim.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &Member{hold}, nil
}

// Done counts the member's job as done. It is repeated as [Hold.Release] is, also if the hold is lost: the server's
// word counts. The error is a [*HoldLost] if the membership had ended before, and a [*NotConfirmed] if its replicas do
// not know.
func (m *Member) Done(ctx context.Context) error { return m.end(ctx, finish) }

// Do adds a member, does the work, and is done. After an error of the work the member is released: where a number of
// jobs is expected, its job stays owed. The errors and the context of the work are those of [Lock.Do].
func (g *Group) Do(ctx context.Context, work func(ctx context.Context) error) error {
	member, err := g.Add(ctx)
	if err != nil {
		return err
	}
	return member.during(ctx, work, func(ctx context.Context, err error) error {
		if err != nil {
			return member.quietly(member.Release(ctx))
		}
		return member.Done(ctx)
	})
}

// Round is the tally of a round that is finished.
type Round struct {
	// Done is how many members were done.
	Done int
	// Lapsed is how many ended otherwise: their lease ran out, or they were revoked.
	Lapsed int
}

// Wait waits until the round is finished: no member lives, nobody waits to be added, and as many are done as
// [Group.Expect] declared. It goes on over failovers until the context ends.
func (g *Group) Wait(ctx context.Context) (Round, error) {
	command := groups.command("WAIT", g.claim.key, "BLOCK", millis(blockAtMost))
	for {
		reply, err := g.claim.repeat(ctx, command, blockAtMost+answerWithin)
		if err != nil {
			return Round{}, err
		}
		if tally, isArray := reply.([]any); isArray && len(tally) == 2 {
			return Round{Done: int(number(tally[0])), Lapsed: int(number(tally[1]))}, nil
		}
	}
}
