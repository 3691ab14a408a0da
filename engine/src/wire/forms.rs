//! How each type of field is written and read. [`super::table`] names one of these forms for each field.

use std::sync::Arc;

use super::fields::{Fields, Name, Read, Writer};
use crate::change::{End, Reason};
use crate::types::{Fence, LeaseMs, MAX_PERMITS, MAX_RESULT_LEN, Rank, Token, TokenView, UnixMs};

/// One way to write values of a type.
pub(super) trait Form<T> {
    /// Reads a value, and refuses it unless [`Form::write`] would have written it. `name` is for error messages.
    fn read(&self, fields: &mut Fields<'_>, name: Name) -> Read<T>;

    fn write(&self, writer: &mut Writer<'_>, value: &T);
}

/// A number between two bounds, or such a number or nothing.
pub(super) struct Number(pub(super) u64, pub(super) u64);

pub(super) const FENCE: Number = Number(1, Fence::MAX.0);
pub(super) const MOMENT: Number = Number(0, UnixMs::MAX.0);
pub(super) const LEASE: Number = Number(1, LeaseMs::MAX.0 as u64);
pub(super) const LIMIT: Number = Number(1, MAX_PERMITS as u64);
pub(super) const INDEX: Number = Number(0, MAX_PERMITS as u64 - 1);
/// A limit by an operator, where 0 lets nobody hold.
pub(super) const PINNED: Number = Number(0, MAX_PERMITS as u64);
pub(super) const ATTEMPTS: Number = Number(1, u32::MAX as u64);
pub(super) const COUNT: Number = Number(0, u64::MAX);

/// A type whose values are numbers.
pub(super) trait Integer: Copy {
    fn of(n: u64) -> Option<Self>;
    fn get(self) -> u64;
}

/// `type: n => made of it, value => its number`
macro_rules! integers {
    ($($type:ty: $n:ident => $of:expr, $value:ident => $get:expr;)*) => {$(
        impl Integer for $type {
            fn of($n: u64) -> Option<Self> {
                $of
            }

            fn get(self) -> u64 {
                let $value = self;
                $get
            }
        }
    )*};
}

integers! {
    u64: n => Some(n), n => n;
    u32: n => n.try_into().ok(), n => n.into();
    Fence: n => Some(Fence(n)), fence => fence.0;
    Rank: n => Some(Rank(Fence(n))), rank => rank.0.0;
    UnixMs: n => Some(UnixMs(n)), moment => moment.0;
    LeaseMs: n => n.try_into().ok().map(LeaseMs), lease => lease.0.into();
}

impl<T: Integer> Form<T> for Number {
    fn read(&self, fields: &mut Fields<'_>, name: Name) -> Read<T> {
        let n = fields.number(name, self.0, self.1)?;
        T::of(n).ok_or_else(|| fields.error(name))
    }

    fn write(&self, writer: &mut Writer<'_>, value: &T) {
        writer.number(value.get());
    }
}

impl<T: Integer> Form<Option<T>> for Number {
    fn read(&self, fields: &mut Fields<'_>, name: Name) -> Read<Option<T>> {
        let n = fields.option(name, self.0, self.1)?;
        n.map(|n| T::of(n).ok_or_else(|| fields.error(name)))
            .transpose()
    }

    fn write(&self, writer: &mut Writer<'_>, value: &Option<T>) {
        writer.option(value.map(T::get));
    }
}

/// How a hold ended: its place in [`End::ALL`].
pub(super) struct How;

impl Form<End> for How {
    fn read(&self, fields: &mut Fields<'_>, name: Name) -> Read<End> {
        let n = fields.number(name, 0, End::ALL.len() as u64 - 1)?;
        let end = usize::try_from(n).ok().and_then(|n| End::ALL.get(n));
        let end = end.map(|(end, _)| *end);
        let end = end.filter(|end| *end != End::Rested || fields.family.has_rests());
        end.ok_or_else(|| fields.error(name))
    }

    fn write(&self, writer: &mut Writer<'_>, end: &End) {
        writer.byte(*end as u8);
    }
}

/// How a hold ended whose place stays taken.
pub(super) struct Early;

impl Form<End> for Early {
    fn read(&self, fields: &mut Fields<'_>, name: Name) -> Read<End> {
        let end = How.read(fields, name)?;
        let may_rest = end.may_rest() && fields.family.has_rests();
        may_rest.then_some(end).ok_or_else(|| fields.error(name))
    }

    fn write(&self, writer: &mut Writer<'_>, end: &End) {
        How.write(writer, end);
    }
}

pub(super) struct Secret;

impl Secret {
    pub(super) fn view<'a>(&self, fields: &mut Fields<'a>, name: Name) -> Read<TokenView<'a>> {
        let text = fields.text(name, 0, Token::MAX_LEN)?;
        if text.is_empty() {
            let uuid = fields.take(name, 16)?.try_into();
            return uuid.map(TokenView::Uuid).map_err(|_| fields.error(name));
        }
        // A UUID written as a text has a shorter form.
        let token = TokenView::parse(text).filter(|token| matches!(token, TokenView::Text(_)));
        token.ok_or_else(|| fields.error(name))
    }

    pub(super) fn write_view(&self, writer: &mut Writer<'_>, token: TokenView<'_>) {
        match token {
            TokenView::Uuid(uuid) => {
                writer.byte(0);
                writer.0.extend_from_slice(&uuid);
            }
            TokenView::Text(text) => writer.text(text),
        }
    }
}

impl Form<Token> for Secret {
    fn read(&self, fields: &mut Fields<'_>, name: Name) -> Read<Token> {
        self.view(fields, name).map(Token::from)
    }

    fn write(&self, writer: &mut Writer<'_>, token: &Token) {
        self.write_view(writer, token.into());
    }
}

/// A result or a reason.
pub(super) struct Text;

impl Form<Arc<[u8]>> for Text {
    fn read(&self, fields: &mut Fields<'_>, name: Name) -> Read<Arc<[u8]>> {
        Ok(fields.text(name, 0, MAX_RESULT_LEN)?.into())
    }

    fn write(&self, writer: &mut Writer<'_>, text: &Arc<[u8]>) {
        writer.text(text);
    }
}

impl Form<Option<Arc<[u8]>>> for Text {
    fn read(&self, fields: &mut Fields<'_>, name: Name) -> Read<Option<Arc<[u8]>>> {
        let text = fields.optional_text(name, 0, MAX_RESULT_LEN)?;
        Ok(text.map(Into::into))
    }

    fn write(&self, writer: &mut Writer<'_>, text: &Option<Arc<[u8]>>) {
        writer.optional_text(text.as_deref());
    }
}

/// Why the last attempt failed: a number, with a text behind the last one.
pub(super) struct Why;

impl Form<Option<Reason>> for Why {
    fn read(&self, fields: &mut Fields<'_>, name: Name) -> Read<Option<Reason>> {
        Ok(match fields.number(name, 0, 3)? {
            0 => None,
            1 => Some(Reason::Lapsed),
            2 => Some(Reason::Revoked),
            _ => Some(Reason::Given(Text.read(fields, name)?)),
        })
    }

    fn write(&self, writer: &mut Writer<'_>, reason: &Option<Reason>) {
        match reason {
            None => writer.byte(0),
            Some(Reason::Lapsed) => writer.byte(1),
            Some(Reason::Revoked) => writer.byte(2),
            Some(Reason::Given(text)) => {
                writer.byte(3);
                writer.text(text);
            }
        }
    }
}

/// 1 and a value, or 0.
pub(super) struct Flagged<F>(pub(super) F);

impl<T, F: Form<T>> Form<Option<T>> for Flagged<F> {
    fn read(&self, fields: &mut Fields<'_>, name: Name) -> Read<Option<T>> {
        let is_there = fields.flag(name)?;
        is_there.then(|| self.0.read(fields, name)).transpose()
    }

    fn write(&self, writer: &mut Writer<'_>, value: &Option<T>) {
        writer.byte(u8::from(value.is_some()));
        if let Some(value) = value {
            self.0.write(writer, value);
        }
    }
}
