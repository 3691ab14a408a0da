//! One hold: what is granted to one token.
//!
//! Guaranteed: a [`Hold`] takes 56 bytes, and no allocation in the usual case (a UUID or a text of up to 16 bytes for a
//! token, no owner), because a server may have a million held locks. It keeps every value exactly.
//!
//! So numbers are stored relative to each other, in few bytes each. A hold with a number that does not fit keeps all of
//! them in a box; see `Numbers`. A longer token that is no UUID, and the owner, are in a box too.
//!
//! Deliberately absent: the passing of time. A hold whose lease has run out stays as it is until a call ends it.

mod extras;
mod grant;
mod kind;

use crate::heap;
use crate::store::slab::StateId;
use crate::types::{Claim, ClientId, Fence, LeaseMs, LeaseUs, Moments, Token, TokenView, UnixMs};
use extras::{Extras, Numbers, U24};
use kind::Kind;

pub use grant::{Grant, GrantView, Rest};

/// One grant of a lock, of permits or of a membership.
#[derive(Clone)]
pub struct Hold {
    extras: Option<Box<Extras>>,
    /// The token, if it is a UUID, or a text of the length in `word`; otherwise zeros, and `extras` has its text.
    token: [u8; 16],
    /// When the lease runs out by this server's lease clock. It counts only if it is not before the moment at
    /// which this server last took over: see `term`.
    pub due: LeaseUs,
    /// The fence, the marks, and the high bits of the client: see `bits`.
    word: u64,
    pub lease: LeaseMs,
    /// Milliseconds from the grant to the start of the present lease.
    start: u32,
    /// The low bits of the client.
    client_low: u32,
    kind: Kind,
    /// The permits or the index, if `kind` has a number: the grant is then at the moment of the fence. Otherwise, by how
    /// many milliseconds the fence is ahead of the grant: this is up to two hours after a start or a promotion, and 0
    /// later.
    number_or_lead: U24,
}

const _: () = assert!(size_of::<Hold>() == 56);

/// The bits of [`Hold`]'s `word`.
mod bits {
    pub(super) const FENCE: u64 = crate::types::Fence::MAX.0;
    pub(super) const RENEWED: u64 = FENCE + 1;
    pub(super) const EPHEMERAL: u64 = RENEWED << 1;
    /// The hold has an owner, perhaps an empty one.
    pub(super) const OWNED: u64 = EPHEMERAL << 1;
    /// The hold has options in its box, so that those without are not asked for them there.
    pub(super) const BOXED_OPTIONS: u64 = OWNED << 1;
    /// The length of the token's text, if it is beside; 0 for another token.
    pub(super) const TEXT: u64 = 0b11111 << TEXT_SHIFT;
    pub(super) const TEXT_SHIFT: u32 = 57;
    /// The bits of the client above the low 32.
    pub(super) const CLIENT: u64 = u64::MAX << CLIENT_SHIFT;
    pub(super) const CLIENT_SHIFT: u32 = 62;

    const MARKS: u64 = RENEWED | EPHEMERAL | OWNED | BOXED_OPTIONS;
    const _: () = assert!(FENCE + MARKS + TEXT == !CLIENT);
}

impl Hold {
    /// Makes a hold without a connection and without a moment on the lease clock.
    pub(crate) fn new<'a>(grant: impl Into<GrantView<'a>>) -> Hold {
        let grant = grant.into();
        let mut word = grant.fence.0.min(bits::FENCE);
        let (mut token, mut text) = ([0; 16], &[][..]);
        match grant.token {
            TokenView::Uuid(uuid) => token = uuid,
            TokenView::Text(theirs) => match token.get_mut(..theirs.len()) {
                Some(start) => {
                    start.copy_from_slice(theirs);
                    word |= (theirs.len() as u64) << bits::TEXT_SHIFT;
                }
                None => text = theirs,
            },
        }
        let owner = grant.owner.unwrap_or_default();
        let lane = grant.lane;
        if grant.renewed {
            word |= bits::RENEWED;
        }
        if grant.owner.is_some() {
            word |= bits::OWNED;
        }
        let has_options = grant.rest != Rest::None || !lane.is_empty();
        if has_options {
            word |= bits::BOXED_OPTIONS;
        }
        let has_extras = text.len() + owner.len() > 0 || has_options;
        let mut hold = Hold {
            extras: has_extras.then(|| Extras::new([text, lane, owner], grant.rest)),
            token,
            due: LeaseUs(0),
            word,
            lease: grant.lease,
            start: 0,
            client_low: 0,
            kind: Kind::of(grant.claim),
            number_or_lead: U24::default(),
        };
        let numbers = Numbers {
            permits_or_index: grant.index.unwrap_or(grant.claim.permits()),
            unheard_ms: 0,
            deadline: grant.deadline,
            granted: grant.granted,
            client: ClientId::NONE,
        };
        hold.set_numbers(numbers);
        hold
    }

    /// Returns what other servers and files know of the hold.
    pub(crate) fn to_grant(&self) -> Grant {
        self.view().into()
    }

    /// Returns the same as [`Hold::to_grant`], without a copy of the texts.
    #[inline]
    pub(crate) fn view(&self) -> GrantView<'_> {
        let Numbers {
            deadline, granted, ..
        } = self.numbers();
        Grant {
            fence: self.fence(),
            token: self.token_view(),
            claim: self.claim(),
            index: self.index(),
            lease: self.lease,
            rest: self.rest().0,
            deadline,
            granted,
            renewed: self.is_renewed(),
            owner: self.owner(),
            lane: self.lane(),
        }
    }

    pub fn fence(&self) -> Fence {
        Fence(self.word & bits::FENCE)
    }

    pub(crate) fn token(&self) -> Token {
        self.token_view().into()
    }

    fn token_view(&self) -> TokenView<'_> {
        match self.token_text() {
            Some(text) => TokenView::Text(text),
            None => TokenView::Uuid(self.token),
        }
    }

    pub(crate) fn has_token(&self, token: &Token) -> bool {
        match (token, self.token_text()) {
            (Token::Uuid(uuid), None) => *uuid == self.token && !self.is_resting(),
            (Token::Text(theirs), Some(ours)) => theirs.as_bytes() == ours,
            (Token::Uuid(_), Some(_)) | (Token::Text(_), None) => false,
        }
    }

    /// Returns the text of a token that is no UUID.
    fn token_text(&self) -> Option<&[u8]> {
        let len = (self.word & bits::TEXT) >> bits::TEXT_SHIFT;
        let text = match (len, self.extras.as_deref()) {
            (0, None) => return None,
            (0, Some(extras)) => extras.texts()[0],
            _ => self.token.get(..len as usize)?,
        };
        (!text.is_empty()).then_some(text)
    }

    /// Returns what is held, and in which lane.
    pub(crate) fn what(&self) -> (Claim, &[u8]) {
        (self.claim(), self.lane())
    }

    /// Returns what becomes of the place of the hold when it ends early, and until when it stays taken by this server's
    /// lease clock. As `due`, that counts only if it is not before the moment at which this server last took over.
    pub(crate) fn rest(&self) -> (Rest, LeaseUs) {
        match self.extras.as_deref() {
            Some(extras) if self.is_marked(bits::BOXED_OPTIONS) => extras.rest(),
            _ => Default::default(),
        }
    }

    /// Whether the hold has ended, and its place stays taken until the end of the lease.
    pub fn is_resting(&self) -> bool {
        self.is_marked(bits::BOXED_OPTIONS) && self.rest().0 == Rest::Now
    }

    /// Sets when the lease runs out, and until when the place stays taken, by this server's lease clock.
    #[inline]
    pub(super) fn set_moments(&mut self, Moments { due, rests_until }: Moments) {
        self.due = due;
        if rests_until > LeaseUs(0)
            && let Some(extras) = &mut self.extras
        {
            extras.set_rest(extras.rest().0, rests_until);
        }
    }

    /// Returns what is left of the hold when it ends early, without a connection and a moment; `None` if nothing is.
    pub(crate) fn rested(&self) -> Option<Hold> {
        let lease = self.rest().0.after()?;
        Some(Hold::new(Grant {
            token: TokenView::Uuid([0; 16]),
            lease,
            rest: Rest::Now,
            deadline: self.granted().after_ms(u64::from(lease.0)),
            ..self.view()
        }))
    }

    /// Returns the name of the lane, which is empty for the nameless one.
    pub fn lane(&self) -> &[u8] {
        let extras = self.extras.as_deref();
        let extras = extras.filter(|_| self.is_marked(bits::BOXED_OPTIONS));
        extras.map_or(&[], |extras| extras.texts()[1])
    }

    pub(crate) fn owner(&self) -> Option<&[u8]> {
        let owner = self.extras.as_deref().map(|extras| extras.texts()[2]);
        (self.is_marked(bits::OWNED)).then(|| owner.unwrap_or_default())
    }

    pub(crate) fn claim(&self) -> Claim {
        match self.kind {
            Kind::Exclusive => Claim::Exclusive,
            Kind::Shared => Claim::Shared,
            Kind::OnePermit => Claim::Permits(1),
            Kind::Permits => Claim::Permits(self.numbers().permits_or_index),
            Kind::Indexed => Claim::Indexed,
            Kind::Member => Claim::Member,
            Kind::Run => Claim::Run,
        }
    }

    /// Returns the index, if the hold was asked for with one.
    pub fn index(&self) -> Option<u32> {
        (self.kind == Kind::Indexed).then(|| self.numbers().permits_or_index)
    }

    pub(crate) fn deadline(&self) -> UnixMs {
        self.numbers().deadline
    }

    pub(crate) fn granted(&self) -> UnixMs {
        self.numbers().granted
    }

    pub(crate) fn is_renewed(&self) -> bool {
        self.is_marked(bits::RENEWED)
    }

    /// Gives the hold a new lease, with its written end at `deadline`.
    pub(super) fn renew(&mut self, lease: LeaseMs, deadline: UnixMs) {
        let numbers = Numbers {
            unheard_ms: 0,
            deadline,
            ..self.numbers()
        };
        self.lease = lease;
        self.set_numbers(numbers);
        self.word |= bits::RENEWED;
    }

    /// Returns how long the place was kept to which the hold was granted, as long as its token has not been heard from.
    pub(crate) fn unheard_ms(&self) -> Option<u32> {
        let numbers = self.boxed_numbers()?;
        (numbers.unheard_ms > 0).then_some(numbers.unheard_ms)
    }

    /// Notes that the hold was granted to a place that was kept for so long.
    pub(super) fn set_unheard(&mut self, keep_ms: u32) {
        self.set_numbers(Numbers {
            unheard_ms: keep_ms,
            ..self.numbers()
        });
    }

    pub(crate) fn client(&self) -> ClientId {
        match self.boxed_numbers() {
            Some(numbers) => numbers.client,
            None => self.client_of_fields(),
        }
    }

    /// Whether the hold ends with the connection of `client`.
    pub(crate) fn is_ephemeral(&self) -> bool {
        self.is_marked(bits::EPHEMERAL)
    }

    /// Notes the connection that the hold was given to, and whether it ends with that connection. Returns the
    /// connection with which it would have ended before.
    #[inline]
    pub(super) fn bind(&mut self, client: ClientId, ephemeral: bool) -> Option<ClientId> {
        let before = self.is_ephemeral().then(|| self.client());
        self.word &= !bits::EPHEMERAL;
        if ephemeral {
            self.word |= bits::EPHEMERAL;
        }
        if self.boxed_numbers().is_some() || !self.fit_client(client) {
            self.set_numbers(Numbers {
                client,
                ..self.numbers()
            });
        }
        before
    }

    /// Returns the bytes on the heap, with the entry in the engine's index of EPHEMERAL holds.
    pub(super) fn heap_bytes(&self) -> usize {
        let extras = self.extras.as_deref().map_or(0, |extras| {
            let numbers = extras.numbers.as_ref().map_or(0, |_| size_of::<Numbers>());
            size_of::<Extras>() + extras.texts.heap_bytes() + numbers
        });
        let entry = size_of::<(ClientId, Fence)>() + size_of::<StateId>();
        extras + usize::from(self.is_ephemeral()) * heap::tree_share(entry)
    }

    fn is_marked(&self, mark: u64) -> bool {
        self.word & mark != 0
    }

    fn boxed_numbers(&self) -> Option<&Numbers> {
        self.extras.as_deref()?.numbers.as_deref()
    }

    fn numbers(&self) -> Numbers {
        if let Some(numbers) = self.boxed_numbers() {
            return *numbers;
        }
        let number = self.number_or_lead.get();
        let (permits_or_index, lead) = match self.kind.has_number() {
            true => (number, 0),
            false => (1, u64::from(number)),
        };
        let granted = self.fence().unix().0 - lead;
        Numbers {
            permits_or_index,
            unheard_ms: 0,
            deadline: UnixMs(granted + u64::from(self.start) + u64::from(self.lease.0)),
            granted: UnixMs(granted),
            client: self.client_of_fields(),
        }
    }

    fn client_of_fields(&self) -> ClientId {
        let high = (self.word & bits::CLIENT) >> bits::CLIENT_SHIFT;
        ClientId(high << 32 | u64::from(self.client_low))
    }

    /// Changes the numbers, which may then fit into the fields, or no longer.
    #[inline(always)]
    fn set_numbers(&mut self, numbers: Numbers) {
        if self.fit(numbers).is_none() {
            self.box_numbers(numbers);
        } else if let Some(extras) = &mut self.extras {
            extras.numbers = None;
            let has_texts = extras.texts().iter().any(|text| !text.is_empty());
            if !has_texts && self.word & bits::BOXED_OPTIONS == 0 {
                self.extras = None;
            }
        }
    }

    #[cold]
    fn box_numbers(&mut self, numbers: Numbers) {
        let extras = self
            .extras
            .get_or_insert_with(|| Extras::new([&[]; 3], Rest::None));
        extras.numbers = Some(Box::new(numbers));
    }

    /// Puts the numbers into the fields. Returns `None` if one of them does not fit. `lease`, `kind` and the fence must
    /// be set already.
    #[inline]
    fn fit(&mut self, numbers: Numbers) -> Option<()> {
        if numbers.unheard_ms > 0 {
            return None;
        }
        let lead = self.fence().unix().0.checked_sub(numbers.granted.0)?;
        let number_or_lead = match self.kind.has_number() {
            true if lead == 0 => u64::from(numbers.permits_or_index),
            true => return None,
            false => lead,
        };
        let first_end = numbers.granted.0.checked_add(u64::from(self.lease.0))?;
        self.number_or_lead = U24::new(number_or_lead)?;
        self.start = u32::try_from(numbers.deadline.0.checked_sub(first_end)?).ok()?;
        self.fit_client(numbers.client).then_some(())
    }

    /// Puts the client into the fields. Returns whether it fits.
    fn fit_client(&mut self, client: ClientId) -> bool {
        let high = client.0 >> 32;
        self.client_low = client.0 as u32;
        self.word = self.word & !bits::CLIENT | high << bits::CLIENT_SHIFT;
        high <= bits::CLIENT >> bits::CLIENT_SHIFT
    }
}

#[cfg(test)]
mod tests;
