#!/usr/bin/perl
# relink.pl [--sources ROOT] FOLDER [FROM=TO ...]: mends the links of the pages (*.md) in FOLDER, which has only some files
# of the sources.
#
# A link to a file that FOLDER has at the same place stays, and one to a folder with a README.md leads to that page. A link
# to FROM leads to TO, both seen from FOLDER. With --sources, a file that ROOT has and FOLDER lacks is copied, and its link
# stays. Of any other link the words stay, because the project has no address on the web that it could lead to. Blocks of
# code, links to the web and links within a page are left alone. deb.sh, dist.sh and docs.sh call this; their tests look for
# dead links.
use strict;
use warnings;
use File::Basename qw(dirname);
use File::Copy qw(copy);
use File::Find qw(find);
use File::Path qw(make_path);
use File::Spec::Functions qw(abs2rel);

my $sources = @ARGV && $ARGV[0] eq '--sources' ? (splice @ARGV, 0, 2)[1] : undef;
my ($folder, @moves) = @ARGV;
die "usage: relink.pl [--sources ROOT] FOLDER [FROM=TO ...]\n" unless defined $folder && -d $folder;
my %moved = map { split /=/, $_, 2 } @moves;

find({ no_chdir => 1, wanted => sub { relink($_) if -f && /\.md$/ } }, $folder);

sub relink {
    my ($page) = @_;
    open(my $in, '<:raw', $page) or die "$page: $!\n";
    my $text = do { local $/; <$in> };
    close($in);
    my $place = dirname(abs2rel($page, $folder));
    my @parts = split /^(```.*?^```)/ms, $text;
    for my $part (grep { !/^```/ } @parts) {
        $part =~ s{(!?\[((?:[^\[\]]|\[[^\[\]]*\])+)\])\(([^()\s#]+)(#[^()\s]*)?\)}{
            my ($label, $words, $target, $anchor) = ($1, $2, $3, $4 // '');
            my $to = $target =~ /^[a-z]+:/ ? $target : destination($place, $target);
            defined $to ? "$label($to$anchor)" : $words
        }ge;
    }
    open(my $out, '>:raw', $page) or die "$page: $!\n";
    print $out @parts;
    close($out) or die "$page: $!\n";
}

# Where the link of a page in the folder $place leads to; undef if nothing is there.
sub destination {
    my ($place, $target) = @_;
    my @path;
    for my $step (split m{/}, "$place/$target") {
        if ($step eq '..') {
            return undef unless @path;
            pop @path;
        } elsif ($step ne '.' && $step ne '') {
            push @path, $step;
        }
    }
    my $path = join '/', @path;
    return abs2rel("/$moved{$path}", "/$place") if exists $moved{$path};
    my $page = "$path/README.md";
    return abs2rel("/$page", "/$place") if -e "$folder/$page";
    if (defined $sources && -f "$sources/$path" && !-e "$folder/$path") {
        make_path(dirname("$folder/$path"));
        copy("$sources/$path", "$folder/$path") or die "$path: $!\n";
    }
    return -f "$folder/$path" ? $target : undef;
}
