const MESSAGES = {};
