mod blocks;
mod hash;
mod lane;
mod model;
mod state;
mod text;
mod unit;
